#include "record/ring_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lowtide::record {
namespace {

struct Shape {
  SectionId id;
  uint64_t entry_bytes, count;
};

constexpr uint64_t kPage = 4096;
constexpr uint64_t RoundUp(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

bool AllZero(const uint8_t* page) noexcept {
  return page[0] == 0 && std::memcmp(page, page + 1, kPage - 1) == 0;
}

void Shapes(const RingSizes& sizes, Shape (&out)[kSectionCount]) noexcept {
  const Shape shapes[] = {
      {kSteps, sizeof(Slot<StepRecord>), sizes.steps},
      {kDevices, sizeof(Slot<DeviceRecord>), sizes.devices},
      {kWorkers, sizeof(Slot<WorkerRecord>), sizes.workers},
      {kMarks, sizeof(Slot<MarkRecord>), sizes.marks},
      {kEvents, sizeof(Slot<EventRecord>), sizes.events},
      {kSeries, sizeof(Slot<SeriesRecord>), sizes.series},
      {kDeviceSeries, sizeof(Slot<DeviceSeriesRecord>), sizes.device_series * kMaxDevices},
      {kShards, sizeof(LedgerShard), kShardCount},
      {kPools, sizeof(LedgerShard), kPoolCount},
      {kWorkerTable, sizeof(WorkerEntry), sizes.worker_table},
      {kLooks, sizeof(Slot<LookRecord>), sizes.looks},
  };
  std::memcpy(out, shapes, sizeof(shapes));
}

}  // namespace

uint64_t RingFileBytes(const RingSizes& sizes) noexcept {
  Shape shapes[kSectionCount];
  Shapes(sizes, shapes);
  uint64_t bytes = kHeaderBytes;
  for (const Shape& shape : shapes) bytes += RoundUp(shape.entry_bytes * shape.count);
  return bytes;
}

// posix_fallocate returns the error; a limit on file sizes would send a signal, so that callers ask for it first.
int RingWriter::MakeFile(const char* path, uint64_t bytes, int* fd) noexcept {
  *fd = ::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (*fd < 0) return errno;
  const int failure = ::posix_fallocate(*fd, 0, static_cast<off_t>(bytes));
  if (failure == 0) return 0;
  ::close(*fd);
  ::unlink(path);
  return failure;
}

int RingWriter::Create(const char* path, const RingSizes& sizes) noexcept {
  const uint64_t bytes = RingFileBytes(sizes);
  int fd = -1;
  if (const int failure = MakeFile(path, bytes, &fd); failure != 0) return failure;
  void* map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int failure = map == MAP_FAILED ? errno : 0;
  ::close(fd);
  if (failure != 0) {
    ::unlink(path);
    return failure;
  }
  base_ = static_cast<uint8_t*>(map);
  Lay(sizes);
  Touch();
  return 0;
}

int RingWriter::Materialise(const char* path) noexcept {
  const uint64_t bytes = header()->file_bytes;
  int fd = -1;
  int failure = MakeFile(path, bytes, &fd);
  if (failure != 0) return failure;
  for (uint64_t at = 0; at < bytes && failure == 0; at += kPage) {
    if (AllZero(base_ + at)) continue;  // as the file is already
    const ssize_t written = ::pwrite(fd, base_ + at, kPage, static_cast<off_t>(at));
    if (written != static_cast<ssize_t>(kPage)) failure = written < 0 ? errno : EIO;
  }
  if (failure == 0 &&
      ::mmap(base_, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    failure = errno;
  }
  ::close(fd);
  if (failure != 0) ::unlink(path);
  if (failure == 0) Touch();
  return failure;
}

int RingWriter::CreateAnonymous(const RingSizes& sizes) noexcept {
  void* map = ::mmap(nullptr, RingFileBytes(sizes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return errno;
  base_ = static_cast<uint8_t*>(map);
  Lay(sizes);
  return 0;
}

void RingWriter::Lay(const RingSizes& sizes) noexcept {
  Shape shapes[kSectionCount];
  Shapes(sizes, shapes);
  FileHeader* head = header();
  head->version = kFormatVersion;
  head->header_bytes = kHeaderBytes;
  head->file_bytes = RingFileBytes(sizes);
  head->section_count = kSectionCount;
  head->series_stride = 1;
  uint64_t at = kHeaderBytes;
  for (const Shape& shape : shapes) {
    const uint64_t bytes = RoundUp(shape.entry_bytes * shape.count);
    head->sections[shape.id] = {at, bytes, static_cast<uint32_t>(shape.entry_bytes),
                                static_cast<uint32_t>(shape.count), 0};
    at += bytes;
  }
  series_.Bind(At<Slot<SeriesRecord>>(kSeries), sizes.series, kSeries);
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    device_series_[i].Bind(At<Slot<DeviceSeriesRecord>>(kDeviceSeries) + i * sizes.device_series,
                           sizes.device_series, kDeviceSeries);
  }
}

// Pages of a shared mapping count as resident once touched: touched one by one as steps are written, they would
// look like a slow growth of the process itself.
void RingWriter::Touch() const noexcept {
  for (uint64_t at = 0; at < header()->file_bytes; at += kPage) {
    (void)*static_cast<volatile const uint8_t*>(base_ + at);
  }
}

template <typename Record>
void RingWriter::Append(SectionId id, const Record& record) noexcept {
  if (base_ == nullptr) return;
  Section& section = header()->sections[id];
  if (section.count == 0) return;
  const uint64_t number = __atomic_fetch_add(&section.head, 1, __ATOMIC_RELAXED);
  WriteSlot(At<Slot<Record>>(id) + number % section.count, number, id, record);
}

void RingWriter::Write(const StepRecord& record) noexcept {
  if (base_ == nullptr) return;
  Append(kSteps, record);
  series_.Add(AsSeries(record));
  FileHeader* head = header();
  __atomic_store_n(&head->sections[kSeries].head, series_.entries(), __ATOMIC_RELAXED);
  __atomic_store_n(&head->series_stride, series_.stride(), __ATOMIC_RELAXED);
  __atomic_store_n(&head->last_step, record.step, __ATOMIC_RELEASE);
}

void RingWriter::Write(const DeviceRecord& record) noexcept {
  if (base_ == nullptr) return;
  Append(kDevices, record);
  if (record.pool < kMaxDevices) device_series_[record.pool].Add(AsSeries(record));
}

void RingWriter::Write(const WorkerRecord& record) noexcept { Append(kWorkers, record); }
void RingWriter::Write(const MarkRecord& record) noexcept { Append(kMarks, record); }
void RingWriter::Write(const EventRecord& record) noexcept { Append(kEvents, record); }
void RingWriter::Write(const LookRecord& record) noexcept { Append(kLooks, record); }

void RingWriter::Abandon() noexcept {
  base_ = nullptr;
  series_ = {};
  for (auto& series : device_series_) series = {};
}

void RingWriter::Publish() noexcept {
  std::memcpy(header()->magic, kMagic, sizeof(kMagic));
  __atomic_store_n(&header()->ready, 1, __ATOMIC_RELEASE);
}

}  // namespace lowtide::record
