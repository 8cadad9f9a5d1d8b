#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "lowtide/record/ring_writer.h"

namespace lowtide::record {

// Where a process's ring file lies and what it is called in the run's folder.
class RingPlace {
 public:
  // Gives the ring, so far in private memory, a file: in `shm_directory` (a disk would stall the training) with a
  // link proc<pid>.ring in `directory`; in `directory` itself when there is no room. The mapping keeps its address.
  // Returns 0, or the errno of the last attempt: the ring then stays in private memory.
  int Open(RingWriter* ring, const char* directory, const char* shm_directory, const char* prefix, int pid) noexcept;
  // Calls it rank<N>.ring (rank<N>.2.ring when that name is taken). Returns 0 or an errno.
  int NameByRank(int rank) noexcept;
  bool in_shm() const noexcept { return in_shm_; }
  bool open() const noexcept { return file_[0] != 0; }
  const char* file() const noexcept { return file_; }   // where the bytes lie
  const char* name() const noexcept { return name_; }   // the path in the run's folder

 private:
  static constexpr size_t kPath = 1024;
  char directory_[kPath] = {};
  char file_[kPath] = {};
  char name_[kPath] = {};
  bool in_shm_ = false;
};

// ---- implementation ----

namespace place_internal {

// Room for the file and as much again, so that it is not lowtide that fills the last of it; and no limit on the
// size of files below it, which would end the process with a signal.
inline bool HasRoom(const char* directory, uint64_t bytes) noexcept {
  struct statvfs space {};
  if (::statvfs(directory, &space) != 0) return false;
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes) return false;
  return static_cast<uint64_t>(space.f_bavail) * space.f_frsize >= 2 * bytes;
}

// A ring in the run's folder that this very process (or one before it with this number here) began: not one of another
// host, whose processes may have the same numbers.
inline bool OfThisHost(const char* path) noexcept {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  FileHeader head{};
  const bool read = ::pread(fd, &head, sizeof head, 0) == static_cast<ssize_t>(sizeof head);
  ::close(fd);
  char host[sizeof head.hostname] = {};
  ::gethostname(host, sizeof host - 1);
  return read && std::memcmp(head.magic, kMagic, sizeof kMagic) == 0 && std::strncmp(head.hostname, host, sizeof host - 1) == 0;
}

// proc<pid>.ring, or proc<pid>.2.ring ... where another host's process has that name. 0 or an errno.
inline int FreeName(char* name, size_t size, const char* directory, const char* file, int pid) noexcept {
  for (int attempt = 1; attempt < 1000; ++attempt) {
    const int length = attempt == 1 ? std::snprintf(name, size, "%s/proc%d.ring", directory, pid)
                                    : std::snprintf(name, size, "%s/proc%d.%d.ring", directory, pid, attempt);
    if (length >= static_cast<int>(size)) return ENAMETOOLONG;
    struct stat status {};
    if (::lstat(name, &status) != 0) return 0;
    char target[1024] = {};
    const bool link = S_ISLNK(status.st_mode) && ::readlink(name, target, sizeof target - 1) > 0;
    if (link ? std::strcmp(target, file) == 0 : OfThisHost(name)) return ::unlink(name) == 0 ? 0 : errno;
  }
  return EEXIST;
}

}  // namespace place_internal

inline int RingPlace::Open(RingWriter* ring, const char* directory, const char* shm_directory, const char* prefix,
                    int pid) noexcept {
  std::snprintf(directory_, sizeof(directory_), "%s", directory);
  const uint64_t bytes = ring->header()->file_bytes;
  char link[kPath], file[kPath];
  int failure = ENOENT;
  if (shm_directory[0] != 0 && place_internal::HasRoom(shm_directory, bytes)) {
    if (std::snprintf(file, sizeof(file), "%s/%s%d.ring", shm_directory, prefix, pid) >= static_cast<int>(kPath)) {
      return ENAMETOOLONG;
    }
    ::unlink(file);  // of a process that had this number before
    failure = ring->Materialise(file);
    if (failure == 0) {
      // Between the look for a name and the link another host may take it: then the next name.
      for (int attempt = 0; attempt < 8; ++attempt) {
        failure = place_internal::FreeName(link, sizeof link, directory, file, pid);
        if (failure == 0 && ::symlink(file, link) == 0) {
          in_shm_ = true;
          std::memcpy(file_, file, sizeof(file_));
          std::memcpy(name_, link, sizeof(name_));
          return 0;
        }
        failure = failure != 0 ? failure : errno;
        if (failure != EEXIST) break;
      }
      // The folder cannot be written: without a link nobody would find the file.
      ::unlink(file);
      return failure;
    }
  }
  if (!place_internal::HasRoom(directory, bytes)) return ENOSPC;
  failure = place_internal::FreeName(link, sizeof link, directory, "", pid);
  if (failure == 0) failure = ring->Materialise(link);
  if (failure != 0) return failure;
  std::memcpy(file_, link, sizeof(file_));
  std::memcpy(name_, link, sizeof(name_));
  return 0;
}

inline int RingPlace::NameByRank(int rank) noexcept {
  if (name_[0] == 0) return ENOENT;
  char name[kPath];
  for (int attempt = 1; attempt < 1000; ++attempt) {
    const int length = attempt == 1 ? std::snprintf(name, sizeof(name), "%s/rank%d.ring", directory_, rank)
                                    : std::snprintf(name, sizeof(name), "%s/rank%d.%d.ring", directory_, rank, attempt);
    if (length >= static_cast<int>(kPath)) return ENAMETOOLONG;
    const int made = in_shm_ ? ::symlink(file_, name) : ::link(name_, name);
    if (made == 0) {
      ::unlink(name_);
      std::memcpy(name_, name, sizeof(name_));
      if (!in_shm_) std::memcpy(file_, name, sizeof(file_));
      return 0;
    }
    if (errno != EEXIST) {
      if (in_shm_ || errno != EPERM) return errno;
      return ::rename(name_, name) == 0 ? 0 : errno;  // a file system without hard links
    }
  }
  return EEXIST;
}

}  // namespace lowtide::record
