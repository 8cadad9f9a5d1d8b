#include "report/snapshot_levels.h"

#include <algorithm>

namespace lowtide::report {
namespace {

using snapshot::Action;
using snapshot::Event;
using snapshot::Lifetimes;

// What an event adds to the driver's memory.
int64_t ReservedChange(const Event& event) {
  switch (event.action()) {
    case Action::kSegmentAlloc:
    case Action::kSegmentMap:
      return static_cast<int64_t>(event.size);
    case Action::kSegmentFree:
    case Action::kSegmentUnmap:
      return -static_cast<int64_t>(event.size);
    default:
      return 0;
  }
}

}  // namespace

Levels MeasureLevels(const Lifetimes& lifetimes, uint64_t reserved_at_end, size_t most) {
  Levels levels;
  const auto events = lifetimes.events;
  levels.events = events.size();
  levels.per_bucket = std::max<size_t>(1, (events.size() + most - 1) / most);
  uint64_t live = lifetimes.older_bytes;
  uint64_t reserved = reserved_at_end;  // undone to the start
  for (const Event& event : events) reserved -= static_cast<uint64_t>(ReservedChange(event));
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    const bool first = i % levels.per_bucket == 0;
    if (event.action() == Action::kAlloc) {
      live += event.size;
    } else if (event.action() == Action::kFreeCompleted) {
      const uint32_t alloc = lifetimes.partner[i];
      live -= alloc == Lifetimes::kNever ? event.size : events[alloc].size;
    }
    reserved += static_cast<uint64_t>(ReservedChange(event));
    if (first) {
      levels.low.push_back(live);
      levels.high.push_back(live);
      levels.reserved.push_back(reserved);
      levels.time_us.push_back(event.flags & Event::kHasTime ? static_cast<int64_t>(event.time_us) : 0);
    } else {
      levels.low.back() = std::min(levels.low.back(), live);
      levels.high.back() = std::max(levels.high.back(), live);
      levels.reserved.back() = std::max(levels.reserved.back(), reserved);
    }
  }
  return levels;
}

}  // namespace lowtide::report
