#include "record/host.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace lowtide::record {
namespace {

constexpr size_t kPath = 512;

void ProcPath(char (&path)[kPath], const char* root, int pid, const char* file) noexcept {
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
int64_t Field(const char* text, const char* name) noexcept {
  const size_t length = std::strlen(name);
  for (const char* at = std::strstr(text, name); at != nullptr; at = std::strstr(at + 1, name)) {
    if ((at == text || at[-1] == '\n') && at[length] == ':') return std::atoll(at + length + 1) * 1024;
  }
  return kAbsent;
}

int64_t ReadNumber(const char* path) noexcept {
  char text[64];
  if (Slurp(path, text) <= 0 || !std::isdigit(static_cast<unsigned char>(text[0]))) return kAbsent;  // "max"
  const unsigned long long value = std::strtoull(text, nullptr, 10);
  return value >= (1ull << 62) ? kAbsent : static_cast<int64_t>(value);  // version 1 writes no limit as a huge one
}

// The tightest limit on the way from a process's group to the root of the hierarchy, and what is used below it.
void TightestLimit(const char* mount, char* group, const char* limit_file, const char* used_file,
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
void ReadCgroups(const char* root, int pid, MemoryLimits* limits) noexcept {
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
Mallinfo2Function FindMallinfo2() noexcept {
  static const auto function = reinterpret_cast<Mallinfo2Function>(::dlsym(RTLD_DEFAULT, "mallinfo2"));
  return function;
}

}  // namespace

ProcessFigures ReadStatm(const char* root, int pid) noexcept {
  char path[kPath], text[128];
  ProcPath(path, root, pid, "statm");
  ProcessFigures figures;
  long long size = 0, resident = 0, shared = 0;
  if (Slurp(path, text) <= 0 || std::sscanf(text, "%lld %lld %lld", &size, &resident, &shared) != 3) return figures;
  static const long page = ::sysconf(_SC_PAGESIZE);
  figures.rss_bytes = resident * page;
  figures.shared_bytes = shared * page;
  return figures;
}

bool ReadStatus(const char* root, int pid, StatusFigures* figures) noexcept {
  char path[kPath], text[4096];
  ProcPath(path, root, pid, "status");
  if (Slurp(path, text) <= 0) return false;
  figures->rss_anon_bytes = Field(text, "RssAnon");
  figures->rss_file_bytes = Field(text, "RssFile");
  figures->rss_shmem_bytes = Field(text, "RssShmem");
  figures->vm_hwm_bytes = Field(text, "VmHWM");
  if (const char* parent = std::strstr(text, "\nPPid:")) figures->parent_pid = std::atoi(parent + 6);
  if (const char* state = std::strstr(text, "\nState:\t")) figures->state = state[8];
  return true;
}

int64_t ReadMinorFaults(const char* root, int pid) noexcept {
  char path[kPath], text[1024];
  ProcPath(path, root, pid, "stat");
  if (Slurp(path, text) <= 0) return kAbsent;
  const char* rest = std::strrchr(text, ')');  // the name before may hold anything
  unsigned long long faults = 0;
  if (rest == nullptr || std::sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %llu", &faults) != 1) return kAbsent;
  return static_cast<int64_t>(faults);
}

int32_t CountDescriptors(const char* root, int pid) noexcept {
  char path[kPath];
  ProcPath(path, root, pid, "fd");
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

SpaceFigures ReadSpace(const char* path) noexcept {
  struct statvfs space {};
  if (::statvfs(path, &space) != 0) return {};
  const auto unit = static_cast<int64_t>(space.f_frsize);
  return {static_cast<int64_t>(space.f_blocks - space.f_bfree) * unit, static_cast<int64_t>(space.f_blocks) * unit};
}

MemoryLimits ReadLimits(const char* root, int pid) noexcept {
  MemoryLimits limits;
  char path[kPath], text[4096];
  std::snprintf(path, sizeof(path), "%s/proc/meminfo", root);
  if (Slurp(path, text) > 0) {
    limits.host_total_bytes = Field(text, "MemTotal");
    limits.host_available_bytes = Field(text, "MemAvailable");
  }
  ReadCgroups(root, pid, &limits);
  return limits;
}

int ListChildren(const char* root, int pid, int* pids, int most) noexcept {
  char path[kPath];
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

bool HeapKnown() noexcept { return FindMallinfo2() != nullptr; }

int64_t ReadHeap() noexcept {
  const Mallinfo2Function function = FindMallinfo2();
  if (function == nullptr) return kAbsent;
  const Mallinfo2 info = function();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

int64_t MonotonicNs() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

int64_t ThreadCpuNs() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

int64_t WallNs() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace lowtide::record
