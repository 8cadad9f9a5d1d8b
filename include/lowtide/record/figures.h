// What every recorded program writes alike, whatever its language.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include "lowtide/record/host.h"
#include "lowtide/record/ring_format.h"

namespace lowtide::record {

// The machine and its limits, into a file's header. `root` as in host.h, `space` the path of /dev/shm.
inline void ReadMachine(const char* root, const char* space, FileHeader* head) noexcept {
  const MemoryLimits limits = ReadLimits(root, 0);
  head->host_total_bytes = limits.host_total_bytes;
  head->cgroup_limit_bytes = limits.cgroup_limit_bytes;
  head->shm_total_bytes = ReadSpace(space).total_bytes;
  rlimit files{};
  head->fd_limit = ::getrlimit(RLIMIT_NOFILE, &files) == 0 ? static_cast<int64_t>(files.rlim_cur) : kAbsent;
  if (ReadStatm(root, 0).rss_bytes != kAbsent) head->capabilities |= kCapProc;
  ::gethostname(head->hostname, sizeof(head->hostname) - 1);
}

// What the operating system says of this process.
inline void ReadProcess(const char* root, const char* space, StepRecord* record) noexcept {
  const ProcessFigures process = ReadStatm(root, 0);
  record->rss_bytes = process.rss_bytes;
  record->shared_bytes = process.shared_bytes;
  record->fds = CountDescriptors(root, 0);
  record->shm_used_bytes = ReadSpace(space).used_bytes;
}

// A device's record of a step, without its figures.
inline DeviceRecord DeviceRecordOf(const StepRecord& step, const DeviceEntry& entry, uint32_t pool) noexcept {
  DeviceRecord record{};
  record.step = step.step;
  record.mono_ns = step.mono_ns;
  record.type = entry.type;
  record.index = entry.index;
  record.phase = step.phase;
  record.pool = static_cast<uint8_t>(pool);
  record.used_bytes = record.total_bytes = kAbsent;
  return record;
}

}  // namespace lowtide::record
