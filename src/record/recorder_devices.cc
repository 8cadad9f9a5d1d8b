// The recorder's devices: what their allocators reported, or what PyTorch's statistics say of those that report nothing.
#include <cstdio>

#include "lowtide/record/figures.h"
#include "lowtide/record/host.h"
#include "record/recorder.h"
#include "record/tracker.h"

namespace lowtide::record {

// Where no device has reported a block: from PyTorch's statistics, as often as their budget allows. False when there is
// nothing new to write.
bool Recorder::AskDevices(const StepRecord& step) noexcept {
  FileHeader* head = ring_.header();
  const bool stats = (head->capabilities & kCapDeviceStats) != 0;
  if (!stats && (device_stats_ == nullptr || __atomic_load_n(&head->devices[0].used, __ATOMIC_ACQUIRE) != 0)) return true;
  if (device_stats_ == nullptr || !device_budget_.Allows(step.mono_ns)) return false;
  const int64_t start = ThreadCpuNs();
  const bool noted = device_stats_();
  device_budget_.Spend(step.mono_ns, ThreadCpuNs() - start);
  if (noted) head->capabilities |= kCapDeviceStats;
  return noted;
}

// True when there is one more than at the step before.
bool Recorder::WriteDevices(const StepRecord& step) noexcept {
  if (!AskDevices(step)) return false;
  DeviceFigures figures;
  uint32_t pool = 0;
  for (; pool < kMaxDevices && ReadDevice(pool, &figures); ++pool) {
    const DeviceEntry& entry = ring_.header()->devices[pool];
    DeviceRecord record = DeviceRecordOf(step, entry, pool);
    record.ooms = figures.ooms;
    record.allocated_bytes = figures.allocated;
    record.reserved_bytes = figures.reserved;
    record.peak_bytes = figures.peak;
    record.blocks = figures.blocks;
    ring_.Write(record);
  }
  const bool more = pool > devices_;
  devices_ = pool;
  return more;
}

void Recorder::SetDevice(int type, int index, int64_t capacity_bytes, const char* name) noexcept {
  if (!started_) return;
  for (DeviceEntry& entry : ring_.header()->devices) {
    if (entry.used == 0 || entry.type != type || entry.index != index) continue;
    entry.capacity_bytes = capacity_bytes;
    std::snprintf(entry.name, sizeof(entry.name), "%s", name);
  }
}

}  // namespace lowtide::record
