// The recorded requests under other settings, and the search for the settings that serve them best.
#include <fmt/core.h>

#include <algorithm>

#include "base/units.h"
#include "snapshot/address_map.h"
#include "snapshot/replay.h"
#include "snapshot/replay_pools.h"

namespace lowtide::snapshot {
namespace {

constexpr uint64_t kMostOomTries = 64;  // a loop that catches the error may log thousands

class Runner {
 public:
  Runner(const Snapshot& snapshot, const Lifetimes& lifetimes, const AllocatorConfig& config,
         const StartState& start, bool recorded_segments)
      : snapshot_(snapshot),
        events_(lifetimes.events),
        pools_(snapshot, lifetimes.device),
        allocator_(config) {
    result_.settings = config.Text();
    alive_ = recorded_segments ? SeedAsRecorded(start) : SeedAnew(start);
  }

  WhatIf Run() {
    for (size_t i = 0; alive_ && i < events_.size(); ++i) {
      alive_ = Follow(i);
      if (!alive_) result_.died_at_event = static_cast<int64_t>(i);
      result_.events = i + 1;
    }
    result_.stats = allocator_.stats();
    return result_;
  }

 private:
  bool SeedAsRecorded(const StartState& start) {
    for (const auto& range : start.segments) {
      allocator_.AddSegment(range.address, range.size, range.stream, pools_.Number(range.pool), range.small);
    }
    for (const auto& used : start.blocks) {
      const auto id = allocator_.Carve(used.address, used.size);
      if (id != Allocator::kNone) live_.Put(used.address, id);
    }
    const auto& config = allocator_.config();
    if (allocator_.stats().reserved > std::min(config.capacity, config.limit)) allocator_.ReleaseCached();
    return allocator_.stats().reserved <= std::min(config.capacity, config.limit);
  }

  // As if the same setting had held from the process' start: the blocks in use are asked for in address
  // order.
  bool SeedAnew(const StartState& start) {
    for (const auto& used : start.blocks) {
      const auto id = allocator_.Malloc(used.requested ? used.requested : used.size, used.stream,
                                        pools_.At(used.address));
      if (id == Allocator::kNone) {
        result_.died_request = used.requested;
        return false;
      }
      live_.Put(used.address, id);
    }
    return true;
  }

  // segment_free events before an alloc or an oom belong to the allocator's own ladder, which this replay
  // runs itself; before anything else they are empty_cache().
  bool IsEmptyCache(size_t i) const {
    for (++i; i < events_.size(); ++i) {
      switch (events_[i].action()) {
        case Action::kSegmentFree:
        case Action::kSegmentUnmap:
          continue;
        case Action::kSegmentAlloc:
        case Action::kSegmentMap:
        case Action::kOom:
          return false;
        default:
          return true;
      }
    }
    return true;
  }

  bool Follow(size_t i) {
    const Event& event = events_[i];
    switch (event.action()) {
      case Action::kAlloc: {
        const auto id = allocator_.Malloc(event.size, snapshot_.ContextOf(event).stream, pools_.Of(event));
        if (id == Allocator::kNone) {
          result_.died_request = event.size;
          return false;
        }
        const uint32_t lost = live_.Put(event.address, id);
        if (lost != AddressMap::kNone) allocator_.Free(lost);
        return true;
      }
      case Action::kFreeCompleted: {
        const uint32_t id = live_.Take(event.address);
        if (id != AddressMap::kNone) allocator_.Free(id);
        return true;
      }
      case Action::kSegmentFree:
      case Action::kSegmentUnmap:
        if (!in_release_ && IsEmptyCache(i)) allocator_.ReleaseCached();
        in_release_ = true;
        return true;
      case Action::kOom: {
        if (++result_.oom_events > kMostOomTries) return true;
        const auto id = allocator_.Malloc(event.size, snapshot_.ContextOf(event).stream, 0);
        if (id != Allocator::kNone) {
          ++result_.oom_events_served;
          allocator_.Free(id);
        } else if (result_.died_at_event < 0) {
          result_.died_at_event = static_cast<int64_t>(i);
          result_.died_request = event.size;
        }
        in_release_ = false;
        return true;
      }
      default:
        in_release_ = false;
        return true;
    }
  }

  const Snapshot& snapshot_;
  std::span<const Event> events_;
  PoolNumbers pools_;
  Allocator allocator_;
  AddressMap live_;
  WhatIf result_;
  bool alive_ = true, in_release_ = false;
};

bool Lived(const WhatIf& outcome) { return outcome.died_at_event < 0 && outcome.died_request == 0; }

}  // namespace

WhatIf Replay(const Snapshot& snapshot, const Lifetimes& lifetimes, const AllocatorConfig& config) {
  const AllocatorConfig recorded = AllocatorConfig::Recorded(snapshot, lifetimes.device);
  // Segments that are there keep their shape under settings that only change later decisions.
  const bool keep = !config.expandable_segments && !recorded.expandable_segments;
  return Runner(snapshot, lifetimes, config, UndoTrace(snapshot, lifetimes.device), keep).Run();
}

Recommendation SearchSettings(const Snapshot& snapshot, const Lifetimes& lifetimes, uint64_t capacity,
                              size_t most_events) {
  Recommendation found;
  found.capacity = capacity;
  AllocatorConfig recorded = AllocatorConfig::Recorded(snapshot, lifetimes.device);
  recorded.capacity = capacity;
  found.recorded = Replay(snapshot, lifetimes, recorded);
  // The likeliest to help first: a long trace is replayed under these alone.
  std::vector<std::string> candidates = {"expandable_segments:True", "max_split_size_mb:128"};
  if (capacity != AllocatorConfig::kUnlimited) {
    candidates.push_back("garbage_collection_threshold:0.8");
    candidates.push_back("max_split_size_mb:128,garbage_collection_threshold:0.8");
  }
  for (const char* more :
       {"defaults", "expandable_segments:True,roundup_power2_divisions:8", "max_split_size_mb:64",
        "max_split_size_mb:256", "max_split_size_mb:512", "roundup_power2_divisions:4",
        "roundup_power2_divisions:8", "roundup_power2_divisions:16",
        "max_split_size_mb:128,roundup_power2_divisions:8"}) {
    candidates.push_back(more);
  }
  const size_t each = std::max<size_t>(1, lifetimes.events.size());
  candidates.resize(std::clamp<size_t>(most_events / each, 1, candidates.size()));
  for (const std::string& candidate : candidates) {
    AllocatorConfig config;
    config.padding = recorded.padding;
    config.capacity = capacity;
    config.Apply(candidate);
    if (config.Text() == found.recorded.settings) continue;
    found.outcomes.push_back(Replay(snapshot, lifetimes, config));
  }
  std::stable_sort(found.outcomes.begin(), found.outcomes.end(), [](const WhatIf& a, const WhatIf& b) {
    if (Lived(a) != Lived(b)) return Lived(a);
    if (!Lived(a) && a.died_at_event != b.died_at_event) return a.died_at_event > b.died_at_event;
    return std::tie(a.stats.peak_reserved, a.stats.retries, a.stats.driver_allocs) <
           std::tie(b.stats.peak_reserved, b.stats.retries, b.stats.driver_allocs);
  });
  found.limits = fmt::format(
      "the requests of the recorded {} events in their recorded order; blocks older than the trace are "
      "placed as they "
      "stood{}; memory outside PyTorch's allocator is not modelled",
      FormatCount(lifetimes.events.size()), " (for expandable segments: packed anew in address order)");
  return found;
}

}  // namespace lowtide::snapshot
