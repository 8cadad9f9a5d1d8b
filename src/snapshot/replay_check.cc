#include <algorithm>

#include "snapshot/address_map.h"
#include "snapshot/replay.h"
#include "snapshot/replay_pools.h"

namespace lowtide::snapshot {
namespace {

class Checker {
 public:
  Checker(const Snapshot& snapshot, int device)
      : snapshot_(snapshot),
        pools_(snapshot, device),
        allocator_(AllocatorConfig::Recorded(snapshot, device)) {
    if (const DeviceTrace* trace = snapshot.TraceOf(device)) events_ = snapshot.EventsOf(*trace);
    Seed(UndoTrace(snapshot, device));
  }

  ReplayCheck Run(const OomVisitor& at_oom) {
    for (size_t i = 0; i < events_.size(); ++i) Follow(i, at_oom);
    return check_;
  }

 private:
  void Seed(const StartState& start) {
    for (const auto& range : start.segments) {
      const uint32_t pool = pools_.Number(range.pool);
      if (range.expandable) {
        ReserveAround(start, range, pool);
        allocator_.MapRange(range.address, range.size, range.stream, pool, range.small);
      } else {
        allocator_.AddSegment(range.address, range.size, range.stream, pool, range.small);
      }
    }
    for (const auto& used : start.blocks) {
      const auto id = allocator_.Carve(used.address, used.size);
      if (id != Allocator::kNone) live_.Put(used.address, id);
    }
    reservations_ = start.reservations;
  }

  // The expandable range that holds `range`, not mapped yet.
  void ReserveAround(const StartState& start, const StartState::Range& range, uint32_t pool) {
    if (allocator_.SegmentAt(range.address)) return;
    const auto& all = start.reservations;
    auto it =
        std::upper_bound(all.begin(), all.end(), range.address,
                         [](uint64_t address, const StartState::Range& r) { return address < r.address; });
    if (it == all.begin()) return;
    const auto next = it;
    --it;
    const uint64_t most = uint64_t{1} << 36;
    const uint64_t end = next == all.end()
                             ? it->address + std::max(most, it->size)
                             : std::max(it->address + it->size, std::min(next->address, it->address + most));
    allocator_.AddSegment(it->address, end - it->address, range.stream, pool, range.small, true);
  }

  // The request that made the driver be asked: the next alloc of the stream.
  const Event* NextAlloc(size_t from, int64_t stream) const {
    for (size_t i = from; i < events_.size() && i < from + 64; ++i) {
      if (events_[i].action() == Action::kAlloc && snapshot_.ContextOf(events_[i]).stream == stream)
        return &events_[i];
      if (events_[i].action() == Action::kOom) return nullptr;
    }
    return nullptr;
  }

  void Wrong(size_t i) {
    if (check_.first_wrong_event < 0) check_.first_wrong_event = static_cast<int64_t>(i);
  }

  void Alloc(size_t i, const Event& event, int64_t stream) {
    const uint64_t rounded = allocator_.Round(event.size);
    const uint32_t pool = pools_.Of(event);
    auto id = allocator_.FindFree(rounded, stream, pool);
    ++check_.allocs;
    if (id != Allocator::kNone && allocator_.block(id).address == event.address) {
      ++check_.addresses_right;
      id = allocator_.Allocate(id, rounded);
    } else {
      Wrong(i);
      id = allocator_.Carve(event.address, rounded);
    }
    if (id != Allocator::kNone) live_.Put(event.address, id);
  }

  void SegmentAlloc(size_t i, const Event& event, int64_t stream) {
    ++check_.segments;
    const Event* request = NextAlloc(i + 1, stream);
    if (!request) {
      --check_.segments;  // a request that then failed: nothing to compare
    } else {
      const uint64_t rounded = allocator_.Round(request->size);
      const bool asked = allocator_.FindFree(rounded, stream, pools_.Of(*request)) == Allocator::kNone;
      if (asked && allocator_.SegmentSize(rounded) == event.size) {
        ++check_.segments_right;
      } else {
        Wrong(i);
      }
    }
    const uint32_t pool = pools_.Of(event);
    allocator_.AddSegment(event.address, event.size, stream, pool, event.size == Allocator::kSmallSegment);
  }

  void SegmentMap(size_t i, const Event& event, int64_t stream) {
    check_.expandable = true;
    const uint32_t pool = pools_.Of(event);
    const Event* request = NextAlloc(i + 1, stream);
    const bool small = request ? Allocator::IsSmall(allocator_.Round(request->size)) : event.size < 20 << 20;
    if (request) {
      ++check_.maps;
      const uint64_t rounded = allocator_.Round(request->size);
      if (allocator_.FindFree(rounded, stream, pool) == Allocator::kNone) {
        ++check_.maps_right;
      } else {
        Wrong(i);
      }
    }
    if (!allocator_.SegmentAt(event.address)) {
      StartState state;
      state.reservations = reservations_;
      ReserveAround(state, {event.address, event.size, stream, {0, 0}, small, true}, pool);
    }
    allocator_.MapRange(event.address, event.size, stream, pool, small);
  }

  void Follow(size_t i, const OomVisitor& at_oom) {
    const Event& event = events_[i];
    const int64_t stream = snapshot_.ContextOf(event).stream;
    switch (event.action()) {
      case Action::kAlloc:
        if (stream != first_stream_ && check_.allocs) check_.single_stream = false;
        if (!check_.allocs) first_stream_ = stream;
        Alloc(i, event, stream);
        break;
      case Action::kFreeCompleted: {
        const uint32_t id = live_.Take(event.address);
        if (id != AddressMap::kNone) allocator_.Free(id);
        break;
      }
      case Action::kSegmentAlloc:
        SegmentAlloc(i, event, stream);
        break;
      case Action::kSegmentFree:
        if (const auto segment = allocator_.SegmentAt(event.address)) allocator_.RemoveSegment(*segment);
        break;
      case Action::kSegmentMap:
        SegmentMap(i, event, stream);
        break;
      case Action::kSegmentUnmap:
        allocator_.UnmapRange(event.address, event.size);
        break;
      case Action::kOom:
        if (at_oom) at_oom(i, allocator_);
        break;
      default:
        break;
    }
  }

  const Snapshot& snapshot_;
  PoolNumbers pools_;
  Allocator allocator_;
  std::span<const Event> events_;
  AddressMap live_;
  std::vector<StartState::Range> reservations_;
  int64_t first_stream_ = 0;
  ReplayCheck check_;
};

}  // namespace

ReplayCheck CheckReplay(const Snapshot& snapshot, int device, const OomVisitor& at_oom) {
  return Checker(snapshot, device).Run(at_oom);
}

}  // namespace lowtide::snapshot
