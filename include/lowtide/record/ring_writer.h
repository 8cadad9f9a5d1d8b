#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lowtide/record/ring_format.h"
#include "lowtide/record/series_writer.h"

namespace lowtide::record {

// Entries per section. The file's size follows from them: 5 MB with these.
struct RingSizes {
  uint32_t steps = 16384, devices = 8192, workers = 4096, marks = 4096, events = 512;
  uint32_t series = 2048, device_series = 256, worker_table = 256, looks = 2048;
};

// Writes one ring file. Nothing here throws, prints or allocates after Create; every failure is a return value.
// Steps and devices are written by one thread at a time, marks and events by any.
class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  // Makes `path` (which must not exist), fills it with posix_fallocate so that a disk that fills up later cannot
  // kill the writer, and maps it. Returns 0 or an errno; after a failure no file is left.
  int Create(const char* path, const RingSizes& sizes) noexcept;
  // The same without a file: for a process that has nowhere to write. Returns 0 or an errno.
  int CreateAnonymous(const RingSizes& sizes) noexcept;
  // Gives the anonymous ring a file, as Create does: its content moves there, its address stays. What other threads
  // count in the moment of the move is lost. Returns 0 or an errno; after a failure it is anonymous as before.
  int Materialise(const char* path) noexcept;
  // Forgets the mapping without unmapping it: other threads may still count in it.
  void Abandon() noexcept;

  bool open() const noexcept { return base_ != nullptr; }
  FileHeader* header() const noexcept { return reinterpret_cast<FileHeader*>(base_); }
  LedgerShard* shards() const noexcept { return At<LedgerShard>(kShards); }
  LedgerShard* pools() const noexcept { return At<LedgerShard>(kPools); }
  WorkerEntry* worker_table() const noexcept { return At<WorkerEntry>(kWorkerTable); }
  uint32_t worker_table_size() const noexcept { return header()->sections[kWorkerTable].count; }

  void Write(const StepRecord& record) noexcept;     // also into the whole-run series
  void Write(const DeviceRecord& record) noexcept;   // the same
  void Write(const WorkerRecord& record) noexcept;
  void Write(const MarkRecord& record) noexcept;
  void Write(const EventRecord& record) noexcept;
  void Write(const LookRecord& record) noexcept;
  // The header is complete: from now on readers may believe it.
  void Publish() noexcept;

 private:
  void Lay(const RingSizes& sizes) noexcept;
  void Touch() const noexcept;
  static int MakeFile(const char* path, uint64_t bytes, int* fd) noexcept;
  template <typename T>
  T* At(SectionId id) const noexcept {
    return reinterpret_cast<T*>(base_ + header()->sections[id].offset);
  }
  template <typename Record>
  void Append(SectionId id, const Record& record) noexcept;

  uint8_t* base_ = nullptr;
  SeriesWriter<SeriesRecord> series_;
  SeriesWriter<DeviceSeriesRecord> device_series_[kMaxDevices];
};

// Bytes that a file of these sizes takes.
uint64_t RingFileBytes(const RingSizes& sizes) noexcept;

// ---- implementation ----

namespace ring_writer_internal {

struct Shape {
  SectionId id;
  uint64_t entry_bytes, count;
};

inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t RoundUp(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

inline bool AllZero(const uint8_t* page) noexcept {
  return page[0] == 0 && std::memcmp(page, page + 1, kPage - 1) == 0;
}

inline void Shapes(const RingSizes& sizes, Shape (&out)[kSectionCount]) noexcept {
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

}  // namespace ring_writer_internal

inline uint64_t RingFileBytes(const RingSizes& sizes) noexcept {
  ring_writer_internal::Shape shapes[kSectionCount];
  ring_writer_internal::Shapes(sizes, shapes);
  uint64_t bytes = kHeaderBytes;
  for (const ring_writer_internal::Shape& shape : shapes) bytes += ring_writer_internal::RoundUp(shape.entry_bytes * shape.count);
  return bytes;
}

// posix_fallocate returns the error; a limit on file sizes would send a signal, so that callers ask for it first.
inline int RingWriter::MakeFile(const char* path, uint64_t bytes, int* fd) noexcept {
  *fd = ::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (*fd < 0) return errno;
  const int failure = ::posix_fallocate(*fd, 0, static_cast<off_t>(bytes));
  if (failure == 0) return 0;
  ::close(*fd);
  ::unlink(path);
  return failure;
}

inline int RingWriter::Create(const char* path, const RingSizes& sizes) noexcept {
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

inline int RingWriter::Materialise(const char* path) noexcept {
  const uint64_t bytes = header()->file_bytes;
  int fd = -1;
  int failure = MakeFile(path, bytes, &fd);
  if (failure != 0) return failure;
  for (uint64_t at = 0; at < bytes && failure == 0; at += ring_writer_internal::kPage) {
    if (ring_writer_internal::AllZero(base_ + at)) continue;  // as the file is already
    const ssize_t written = ::pwrite(fd, base_ + at, ring_writer_internal::kPage, static_cast<off_t>(at));
    if (written != static_cast<ssize_t>(ring_writer_internal::kPage)) failure = written < 0 ? errno : EIO;
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

inline int RingWriter::CreateAnonymous(const RingSizes& sizes) noexcept {
  void* map = ::mmap(nullptr, RingFileBytes(sizes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return errno;
  base_ = static_cast<uint8_t*>(map);
  Lay(sizes);
  return 0;
}

inline void RingWriter::Lay(const RingSizes& sizes) noexcept {
  ring_writer_internal::Shape shapes[kSectionCount];
  ring_writer_internal::Shapes(sizes, shapes);
  FileHeader* head = header();
  head->version = kFormatVersion;
  head->header_bytes = kHeaderBytes;
  head->file_bytes = RingFileBytes(sizes);
  head->section_count = kSectionCount;
  head->series_stride = 1;
  uint64_t at = kHeaderBytes;
  for (const ring_writer_internal::Shape& shape : shapes) {
    const uint64_t bytes = ring_writer_internal::RoundUp(shape.entry_bytes * shape.count);
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
inline void RingWriter::Touch() const noexcept {
  for (uint64_t at = 0; at < header()->file_bytes; at += ring_writer_internal::kPage) {
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

inline void RingWriter::Write(const StepRecord& record) noexcept {
  if (base_ == nullptr) return;
  Append(kSteps, record);
  series_.Add(AsSeries(record));
  FileHeader* head = header();
  __atomic_store_n(&head->sections[kSeries].head, series_.entries(), __ATOMIC_RELAXED);
  __atomic_store_n(&head->series_stride, series_.stride(), __ATOMIC_RELAXED);
  __atomic_store_n(&head->last_step, record.step, __ATOMIC_RELEASE);
}

inline void RingWriter::Write(const DeviceRecord& record) noexcept {
  if (base_ == nullptr) return;
  Append(kDevices, record);
  if (record.pool < kMaxDevices) device_series_[record.pool].Add(AsSeries(record));
}

inline void RingWriter::Write(const WorkerRecord& record) noexcept { Append(kWorkers, record); }
inline void RingWriter::Write(const MarkRecord& record) noexcept { Append(kMarks, record); }
inline void RingWriter::Write(const EventRecord& record) noexcept { Append(kEvents, record); }
inline void RingWriter::Write(const LookRecord& record) noexcept { Append(kLooks, record); }

inline void RingWriter::Abandon() noexcept {
  base_ = nullptr;
  series_ = {};
  for (auto& series : device_series_) series = {};
}

inline void RingWriter::Publish() noexcept {
  std::memcpy(header()->magic, kMagic, sizeof(kMagic));
  __atomic_store_n(&header()->ready, 1, __ATOMIC_RELEASE);
}

}  // namespace lowtide::record
