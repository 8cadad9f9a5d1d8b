// What the operating system says of processes and of the machine. Every path is below `root`, so that tests can lay
// out a small tree of their own; "" is the real one. Nothing allocates or throws.
#pragma once

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "lowtide/record/ring_format.h"

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

// ---- implementation ----

namespace host_internal {

inline constexpr size_t kPath = 512;

inline void ProcPath(char (&path)[kPath], const char* root, int pid, const char* file) noexcept {
  if (pid == 0) {
    std::snprintf(path, kPath, "%s/proc/self/%s", root, file);
  } else {
    std::snprintf(path, kPath, "%s/proc/%d/%s", root, pid, file);
  }
}

// The file's beginning as text; its length, or -1. Opened anew each time: a program may close every descriptor.
template <size_t N>
ssize_t Slurp(const char* path, char (&text)[N]) noexcept {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  size_t length = 0;
  while (length < N - 1) {
    const ssize_t got = ::read(fd, text + length, N - 1 - length);
    if (got <= 0) break;
    length += static_cast<size_t>(got);
  }
  ::close(fd);
  text[length] = 0;
  return static_cast<ssize_t>(length);
}

// The number of kilobytes in a line "Name:   123 kB", in bytes.
inline int64_t Field(const char* text, const char* name) noexcept {
  const size_t length = std::strlen(name);
  for (const char* at = std::strstr(text, name); at != nullptr; at = std::strstr(at + 1, name)) {
    if ((at == text || at[-1] == '\n') && at[length] == ':') return std::atoll(at + length + 1) * 1024;
  }
  return kAbsent;
}

inline int64_t ReadNumber(const char* path) noexcept {
  char text[64];
  if (Slurp(path, text) <= 0 || !std::isdigit(static_cast<unsigned char>(text[0]))) return kAbsent;  // "max"
  const unsigned long long value = std::strtoull(text, nullptr, 10);
  return value >= (1ull << 62) ? kAbsent : static_cast<int64_t>(value);  // version 1 writes no limit as a huge one
}

// The tightest limit on the way from a process's group to the root of the hierarchy, and what is used below it.
inline void TightestLimit(const char* mount, char* group, const char* limit_file, const char* used_file,
                   MemoryLimits* limits) noexcept {
  for (;;) {
    char path[2 * kPath];
    std::snprintf(path, sizeof(path), "%s%s/%s", mount, group, limit_file);
    const int64_t limit = ReadNumber(path);
    if (limit != kAbsent && (limits->cgroup_limit_bytes == kAbsent || limit < limits->cgroup_limit_bytes)) {
      limits->cgroup_limit_bytes = limit;
      std::snprintf(path, sizeof(path), "%s%s/%s", mount, group, used_file);
      limits->cgroup_used_bytes = ReadNumber(path);
    }
    char* slash = std::strrchr(group, '/');
    if (slash == nullptr) return;
    *slash = 0;
  }
}

// Lines "hierarchy:controllers:/group": "0::" is version 2, a list with "memory" version 1.
inline void ReadCgroups(const char* root, int pid, MemoryLimits* limits) noexcept {
  char path[kPath], text[4096], mount[kPath];
  ProcPath(path, root, pid, "cgroup");
  if (Slurp(path, text) <= 0) return;
  char* rest = nullptr;
  for (char* line = ::strtok_r(text, "\n", &rest); line != nullptr; line = ::strtok_r(nullptr, "\n", &rest)) {
    char* controllers = std::strchr(line, ':');
    char* group = controllers == nullptr ? nullptr : std::strchr(controllers + 1, ':');
    if (group == nullptr) continue;
    *group++ = 0;
    ++controllers;
    if (std::strcmp(group, "/") == 0) group[0] = 0;
    if (controllers[0] == 0) {
      std::snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup", root);
      TightestLimit(mount, group, "memory.max", "memory.current", limits);
    } else if (std::strstr(controllers, "memory") != nullptr) {
      std::snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/memory", root);
      TightestLimit(mount, group, "memory.limit_in_bytes", "memory.usage_in_bytes", limits);
    }
  }
}

using Mallinfo2 = struct mallinfo2_layout {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
using Mallinfo2Function = Mallinfo2 (*)();

// Looked up, not linked: older C libraries do not have it.
inline Mallinfo2Function FindMallinfo2() noexcept {
  static const auto function = reinterpret_cast<Mallinfo2Function>(::dlsym(RTLD_DEFAULT, "mallinfo2"));
  return function;
}

}  // namespace host_internal

inline ProcessFigures ReadStatm(const char* root, int pid) noexcept {
  char path[host_internal::kPath], text[128];
  host_internal::ProcPath(path, root, pid, "statm");
  ProcessFigures figures;
  long long size = 0, resident = 0, shared = 0;
  if (host_internal::Slurp(path, text) <= 0 || std::sscanf(text, "%lld %lld %lld", &size, &resident, &shared) != 3) return figures;
  static const long page = ::sysconf(_SC_PAGESIZE);
  figures.rss_bytes = resident * page;
  figures.shared_bytes = shared * page;
  return figures;
}

inline bool ReadStatus(const char* root, int pid, StatusFigures* figures) noexcept {
  char path[host_internal::kPath], text[4096];
  host_internal::ProcPath(path, root, pid, "status");
  if (host_internal::Slurp(path, text) <= 0) return false;
  figures->rss_anon_bytes = host_internal::Field(text, "RssAnon");
  figures->rss_file_bytes = host_internal::Field(text, "RssFile");
  figures->rss_shmem_bytes = host_internal::Field(text, "RssShmem");
  figures->vm_hwm_bytes = host_internal::Field(text, "VmHWM");
  if (const char* parent = std::strstr(text, "\nPPid:")) figures->parent_pid = std::atoi(parent + 6);
  if (const char* state = std::strstr(text, "\nState:\t")) figures->state = state[8];
  return true;
}

inline int64_t ReadMinorFaults(const char* root, int pid) noexcept {
  char path[host_internal::kPath], text[1024];
  host_internal::ProcPath(path, root, pid, "stat");
  if (host_internal::Slurp(path, text) <= 0) return kAbsent;
  const char* rest = std::strrchr(text, ')');  // the name before may hold anything
  unsigned long long faults = 0;
  if (rest == nullptr || std::sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %llu", &faults) != 1) return kAbsent;
  return static_cast<int64_t>(faults);
}

inline int32_t CountDescriptors(const char* root, int pid) noexcept {
  char path[host_internal::kPath];
  host_internal::ProcPath(path, root, pid, "fd");
  struct stat status {};
  if (::stat(path, &status) != 0) return -1;
  if (status.st_size > 0 && root[0] == 0) return static_cast<int32_t>(status.st_size);
  DIR* directory = ::opendir(path);
  if (directory == nullptr) return -1;
  int32_t count = 0;
  while (const dirent* entry = ::readdir(directory)) count += entry->d_name[0] != '.';
  ::closedir(directory);
  return pid == 0 && root[0] == 0 ? count - 1 : count;  // less the one that reads
}

inline SpaceFigures ReadSpace(const char* path) noexcept {
  struct statvfs space {};
  if (::statvfs(path, &space) != 0) return {};
  const auto unit = static_cast<int64_t>(space.f_frsize);
  return {static_cast<int64_t>(space.f_blocks - space.f_bfree) * unit, static_cast<int64_t>(space.f_blocks) * unit};
}

inline MemoryLimits ReadLimits(const char* root, int pid) noexcept {
  MemoryLimits limits;
  char path[host_internal::kPath], text[4096];
  std::snprintf(path, sizeof(path), "%s/proc/meminfo", root);
  if (host_internal::Slurp(path, text) > 0) {
    limits.host_total_bytes = host_internal::Field(text, "MemTotal");
    limits.host_available_bytes = host_internal::Field(text, "MemAvailable");
  }
  host_internal::ReadCgroups(root, pid, &limits);
  return limits;
}

inline int ListChildren(const char* root, int pid, int* pids, int most) noexcept {
  char path[host_internal::kPath];
  std::snprintf(path, sizeof(path), "%s/proc", root);
  DIR* directory = ::opendir(path);
  if (directory == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = ::readdir(directory)) {
    if (!std::isdigit(static_cast<unsigned char>(entry->d_name[0])) || count == most) continue;
    StatusFigures status;
    const int child = std::atoi(entry->d_name);
    if (ReadStatus(root, child, &status) && status.parent_pid == pid) pids[count++] = child;
  }
  ::closedir(directory);
  return count;
}

inline bool HeapKnown() noexcept { return host_internal::FindMallinfo2() != nullptr; }

inline int64_t ReadHeap() noexcept {
  const host_internal::Mallinfo2Function function = host_internal::FindMallinfo2();
  if (function == nullptr) return kAbsent;
  const host_internal::Mallinfo2 info = function();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

inline int64_t MonotonicNs() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

inline int64_t ThreadCpuNs() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

inline int64_t WallNs() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace lowtide::record
