#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "snapshot/allocator.h"
#include "snapshot/lifetimes.h"
#include "snapshot/model.h"

namespace lowtide::snapshot {

// How the allocator stood when the trace began, found by undoing the trace from the final segments. Exact for
// addresses and order; the size of a block older than the trace and freed in it is known up to an unsplit
// tail of 1 MiB.
struct StartState {
  struct Range {
    uint64_t address, size;
    int64_t stream;
    std::pair<int64_t, int64_t> pool;
    bool small, expandable;
  };
  struct Used {
    uint64_t address, size, requested;
    int64_t stream;
  };
  std::vector<Range> segments;      // mapped, ascending
  std::vector<Used> blocks;         // in use, ascending
  std::vector<Range> reservations;  // address ranges of expandable segments, ever mapped
};
StartState UndoTrace(const Snapshot& snapshot, int device);

// The recorded run followed by the allocator's rules: every decision is predicted, compared, and then made as
// recorded.
struct ReplayCheck {
  uint64_t allocs = 0, addresses_right = 0;   // which block each request got
  uint64_t segments = 0, segments_right = 0;  // when the driver was asked, and for how much
  uint64_t maps = 0, maps_right = 0;          // the same for pages of expandable segments
  bool single_stream = true, expandable = false;
  int64_t first_wrong_event = -1;
};
// `at`, when given, is called before each oom event with the allocator as it stood then.
using OomVisitor = std::function<void(size_t event, const Allocator& allocator)>;
ReplayCheck CheckReplay(const Snapshot& snapshot, int device, const OomVisitor& at_oom = {});

// The recorded requests under other settings.
struct WhatIf {
  std::string settings;
  Allocator::Stats stats;
  uint64_t events = 0;
  int64_t died_at_event = -1;  // -1: it lived to the trace's end
  uint64_t died_request = 0;
  uint64_t oom_events_served = 0;  // recorded oom events whose request was served
  uint64_t oom_events = 0;
};
WhatIf Replay(const Snapshot& snapshot, const Lifetimes& lifetimes, const AllocatorConfig& config);

// What a search over settings recommends. Outcomes are sorted, best first.
struct Recommendation {
  WhatIf recorded;  // under the recorded settings, by the same rules
  std::vector<WhatIf> outcomes;
  uint64_t capacity = AllocatorConfig::kUnlimited;
  std::string limits;  // what the answer rests on, one sentence
};
// Stops trying further settings once `most_events` events have been replayed.
Recommendation SearchSettings(const Snapshot& snapshot, const Lifetimes& lifetimes, uint64_t capacity,
                              size_t most_events = size_t{1} << 32);

}  // namespace lowtide::snapshot
