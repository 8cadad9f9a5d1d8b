#pragma once

#include "record/ring_writer.h"

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

}  // namespace lowtide::record
