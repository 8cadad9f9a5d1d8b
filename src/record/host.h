// What the operating system says of processes and of the machine. Every path is below `root`, so that tests can lay
// out a small tree of their own; "" is the real one. Nothing allocates or throws.
#pragma once

#include <cstdint>

#include "record/ring_format.h"

namespace lowtide::record {

struct ProcessFigures {
  int64_t rss_bytes = kAbsent, shared_bytes = kAbsent;  // statm; shared is file-backed and shmem pages
};
// /proc/<pid>/statm; pid 0 is this process. About 2 microseconds.
ProcessFigures ReadStatm(const char* root, int pid) noexcept;

struct StatusFigures {
  int64_t rss_anon_bytes = kAbsent, rss_file_bytes = kAbsent, rss_shmem_bytes = kAbsent, vm_hwm_bytes = kAbsent;
  int parent_pid = -1;
  char state = 0;
};
// /proc/<pid>/status. About 8 microseconds. False when the process is gone.
bool ReadStatus(const char* root, int pid, StatusFigures* figures) noexcept;

// Minor page faults of a process so far (stat, field 10); kAbsent when it is gone. smaps is never read: it would
// hold the process's address space lock for as long as it takes.
int64_t ReadMinorFaults(const char* root, int pid) noexcept;

// Open descriptors: the size of /proc/<pid>/fd where the kernel tells it (6.2 and later), else counted; -1: unknown.
int32_t CountDescriptors(const char* root, int pid) noexcept;

// Bytes in use, and all bytes, of the file system below `path`.
struct SpaceFigures {
  int64_t used_bytes = kAbsent, total_bytes = kAbsent;
};
SpaceFigures ReadSpace(const char* path) noexcept;

struct MemoryLimits {
  int64_t host_total_bytes = kAbsent, host_available_bytes = kAbsent;  // /proc/meminfo
  int64_t cgroup_limit_bytes = kAbsent, cgroup_used_bytes = kAbsent;   // the tightest limit above the process
};
// Version 2 and version 1 of cgroups, every level up to the root.
MemoryLimits ReadLimits(const char* root, int pid) noexcept;

// The processes whose parent is `pid`, at most `most` of them; returns how many.
int ListChildren(const char* root, int pid, int* pids, int most) noexcept;

// C heap in use: mallinfo2's uordblks + hblkhd (glibc 2.33 and later); kAbsent without. Takes every arena's lock and
// walks the lists of free chunks: callers bound how often.
int64_t ReadHeap() noexcept;
bool HeapKnown() noexcept;

int64_t MonotonicNs() noexcept;
int64_t ThreadCpuNs() noexcept;  // processor time of the calling thread
int64_t WallNs() noexcept;

}  // namespace lowtide::record
