#include "record/ring_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "record/run_folder.h"
#include "lowtide/record/slot.h"

namespace lowtide::record {
namespace {

constexpr const char* kNotWhole = "take the file as its process left it, or record the run again";

// The size of an entry of each section in this version of the format.
constexpr uint32_t kEntryBytes[kSectionCount] = {
    sizeof(Slot<StepRecord>),   sizeof(Slot<DeviceRecord>),       sizeof(Slot<WorkerRecord>),
    sizeof(Slot<MarkRecord>),   sizeof(Slot<EventRecord>),        sizeof(Slot<SeriesRecord>),
    sizeof(Slot<DeviceSeriesRecord>), sizeof(LedgerShard),        sizeof(LedgerShard),
    sizeof(WorkerEntry), sizeof(Slot<LookRecord>)};

template <size_t N>
void Terminate(char (&text)[N]) {
  text[N - 1] = 0;
}

}  // namespace

RingFile::RingFile(const std::string& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) {
    const int failure = errno;
    struct stat link {};
    if (failure == ENOENT && ::lstat(path.c_str(), &link) == 0) {
      char target[1024] = {};
      const ssize_t length = ::readlink(path.c_str(), target, sizeof target - 1);
      if (const std::string host = length > 0 ? OtherHostOf(target) : ""; !host.empty()) {
        throw Error(fmt::format("this ring lies in the memory of host {}", host),
                    "`lowtide run` on that host puts it here when the run ends there; or look at the run on that host", path);
      }
      throw Error("the ring that this link points to is gone",
                  "it lay in memory (/dev/shm) and was lost with a restart or a clean-up of the machine", path);
    }
    throw Error(fmt::format("cannot open the ring file: {}", std::strerror(failure)),
                "give a run folder or a ring file that `lowtide run` wrote", path);
  }
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd_);
    throw Error("not a regular file", "give a ring file that `lowtide run` wrote", path);
  }
  try {
    RefreshHeader();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

RingFile::~RingFile() {
  if (fd_ >= 0) ::close(fd_);
}

size_t RingFile::Read(uint64_t offset, void* to, size_t bytes) const {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::pread(fd_, static_cast<char*>(to) + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

bool RingFile::WriteWord(uint64_t offset, uint64_t value) const {
  // By descriptor: the file is renamed once its process knows its rank.
  const int fd = ::open(fmt::format("/proc/self/fd/{}", fd_).c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = ::pwrite(fd, &value, sizeof(value), static_cast<off_t>(offset)) == sizeof(value);
  ::close(fd);
  return written;
}

void RingFile::RefreshHeader() {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) throw Error("the ring file is gone", kNotWhole, path_);
  bytes_ = static_cast<uint64_t>(status.st_size);
  FileHeader fresh{};
  const size_t got = Read(0, &fresh, sizeof(fresh));
  if (got < sizeof(kMagic) || std::memcmp(fresh.magic, kMagic, sizeof(kMagic)) != 0) {
    throw Error("not a lowtide ring file", "give a ring file that `lowtide run` wrote", path_, 0);
  }
  if (got >= 12 && fresh.version != kFormatVersion) {
    throw Error(fmt::format("this ring has format version {}, this lowtide reads {}", fresh.version, kFormatVersion),
                "use the lowtide that recorded it", path_, 8);
  }
  if (got < sizeof(fresh)) throw Error("the ring file is cut inside its header", kNotWhole, path_, got);
  if (fresh.ready != 1) {
    throw Error("the ring file was never finished: its process ended while it began", "record the run again", path_);
  }
  header_ = fresh;
  CheckSections();
  Terminate(header_.python_version);
  Terminate(header_.torch_version);
  Terminate(header_.hostname);
  Terminate(header_.script);
  Terminate(header_.hooks);
  for (DeviceEntry& device : header_.devices) Terminate(device.name);
}

void RingFile::CheckSections() {
  cut_ = bytes_ < header_.file_bytes;
  const uint32_t known = std::min<uint32_t>(header_.section_count, kSectionCount);
  for (uint32_t id = 0; id < kSectionCount; ++id) {
    Section& section = header_.sections[id];
    if (id >= known) section = {};
    const bool sane = section.count == 0 ||
                      (section.entry_bytes == kEntryBytes[id] && section.offset >= sizeof(FileHeader) &&
                       section.offset <= header_.file_bytes && section.bytes <= header_.file_bytes - section.offset &&
                       section.count <= section.bytes / section.entry_bytes && section.offset % 8 == 0);
    if (!sane) {
      throw Error(fmt::format("the ring's table of sections is damaged (section {})", id), kNotWhole, path_,
                  offsetof(FileHeader, sections) + id * sizeof(Section));
    }
  }
}

}  // namespace lowtide::record
