#include "snapshot/model.h"

#include <algorithm>
#include <set>

namespace lowtide::snapshot {

const char* ActionName(Action action) {
  static constexpr const char* kNames[] = {
      "alloc",       "free_requested",     "free_completed", "segment_alloc", "segment_free",
      "segment_map", "segment_unmap",      "snapshot",       "oom",           "user_defined",
      "annotate",    "workspace_snapshot", "unknown"};
  return kNames[static_cast<int>(action)];
}

std::vector<int> Snapshot::Devices() const {
  std::set<int> found;
  for (const auto& segment : segments) found.insert(segment.device);
  for (const auto& trace : traces) {
    if (trace.count) found.insert(trace.device);
  }
  return {found.begin(), found.end()};
}

size_t Snapshot::StackCount() const {
  std::vector<bool> used(names.stack_count());
  for (const auto& trace : traces) {
    for (const Event& event : EventsOf(trace)) used[event.stack] = true;
  }
  for (const auto& segment : segments) {
    used[segment.stack] = true;
    for (const Block& block : BlocksOf(segment)) used[block.stack] = true;
  }
  used[0] = false;
  return static_cast<size_t>(std::count(used.begin(), used.end(), true));
}

const DeviceTrace* Snapshot::TraceOf(int device) const {
  for (const auto& trace : traces) {
    if (trace.device == device && trace.count) return &trace;
  }
  return nullptr;
}

}  // namespace lowtide::snapshot
