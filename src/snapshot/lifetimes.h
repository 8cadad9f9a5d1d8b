#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "snapshot/model.h"

namespace lowtide::snapshot {

// One block that was alive at some moment: made by an event of the trace, or older than the trace.
struct LiveBlock {
  uint64_t address = 0;
  uint64_t bytes = 0;        // requested
  StackId stack = 0;         // of its allocation; 0 unknown
  int64_t alloc_event = -1;  // -1: older than the trace
  int64_t free_event = -1;   // its free_completed; -1: never freed in the trace
};

// One device's trace followed from its first event: who was born when and died when, and the peak.
// The peak is the largest number of requested bytes between alloc and free_completed after any event, where
// blocks older than the trace count: those alive at the end that no event made, and those freed that no event
// made.
struct Lifetimes {
  static constexpr uint32_t kNever = 0xffffffff;

  int device = 0;
  std::span<const Event> events;
  // Per event: of an alloc, its free_completed; of a free_completed, its alloc; kNever for none and for other
  // events.
  PodVector<uint32_t> partner;
  std::vector<LiveBlock> older;  // blocks older than the trace
  uint64_t older_bytes = 0;      // held when the trace began
  uint64_t peak_bytes = 0;
  int64_t peak_event = -1;  // -1: before the first event, or no event
  bool has_oom = false;
  std::vector<bool> stacks;   // of the trace, by id
  bool ring_wrapped = false;  // frees without an alloc, so the trace lost its beginning

  // Requested bytes held after event `index` (-1: before the first). Counts from the start; for plots use
  // Levels().
  std::vector<LiveBlock> AliveAfter(int64_t index) const;
};

Lifetimes FollowLifetimes(const Snapshot& snapshot, int device);

}  // namespace lowtide::snapshot
