#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "snapshot/peak.h"
#include "snapshot/replay.h"

namespace lowtide::snapshot {

// Free memory inside segments that a failed request could not have.
struct FreeGroup {
  std::string why;  // "in the same pool and stream, but in pieces", "of stream 0x5", "in the small pool", ...
  uint64_t bytes = 0, largest = 0, blocks = 0;
};

// One `oom` event explained, with the allocator as it stood at that moment.
struct OomReport {
  size_t event = 0;
  std::optional<int64_t> time_us;
  StackId stack = 0;
  uint64_t request = 0;                 // rounded, as the event has it
  std::optional<uint64_t> device_free;  // the driver's, after the allocator had released its cache
  uint64_t driver_request = 0;          // what the driver was asked for
  uint64_t reserved = 0, allocated = 0, requested = 0;
  uint64_t free_in_segments = 0, largest_free_block = 0;
  uint64_t usable_free = 0, largest_usable_block = 0;  // same pool and stream
  std::vector<FreeGroup> free_groups;
  std::string cause;  // capacity, fragmentation, limit, other
  std::string explanation;
  uint64_t missing = 0;             // bytes by which it did not fit
  std::optional<uint64_t> outside;  // held on the device outside the allocator, when the capacity is known
  Holders holders;
  std::optional<Recommendation> remedies;  // replays with the room this process had
};

// `capacity`: of the device in bytes, when the user tells.
std::vector<OomReport> ExplainOoms(const Snapshot& snapshot, const Lifetimes& lifetimes, CallSites& sites,
                                   std::optional<uint64_t> capacity);

// How the reserved memory of a device is cut up when the snapshot was taken.
struct Fragmentation {
  uint64_t reserved = 0, active = 0, requested = 0;
  uint64_t releasable = 0;   // soft: whole free segments, which empty_cache() would return
  uint64_t pinned_free = 0;  // hard: free, but in segments that also hold blocks in use
  uint64_t rounding = 0;     // in blocks in use, beyond what was asked for
  uint64_t pending = 0;      // freed, waiting for another stream
  uint64_t largest_free_block = 0;
  uint64_t free_blocks = 0;
  struct Part {
    std::string name;  // "stream 0", "small pool", "pool (1, 0)"
    uint64_t reserved = 0, free = 0, largest_free = 0;
  };
  std::vector<Part> by_stream, by_pool;
};
Fragmentation MeasureFragmentation(const Snapshot& snapshot, int device);

}  // namespace lowtide::snapshot
