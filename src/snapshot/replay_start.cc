#include <algorithm>
#include <map>

#include "snapshot/replay.h"

namespace lowtide::snapshot {
namespace {

struct Undo {
  std::map<uint64_t, StartState::Range> segments;  // by address
  std::map<uint64_t, StartState::Used> blocks;
  std::map<uint64_t, uint64_t> ever_mapped;  // begin -> end
  Allocator sizes;                           // for rounding

  explicit Undo(const AllocatorConfig& config) : sizes(config) {}

  void Ever(uint64_t begin, uint64_t end) {
    auto it = ever_mapped.upper_bound(begin);
    if (it != ever_mapped.begin() && std::prev(it)->second >= begin) {
      --it;
      begin = it->first;
      end = std::max(end, it->second);
      it = ever_mapped.erase(it);
    }
    while (it != ever_mapped.end() && it->first <= end) {
      end = std::max(end, it->second);
      it = ever_mapped.erase(it);
    }
    ever_mapped[begin] = end;
  }
  void AddBlock(const Event& event, int64_t stream) {
    uint64_t size = sizes.Round(event.size);
    const auto next = blocks.upper_bound(event.address);
    if (next != blocks.end()) size = std::min(size, next->first - event.address);
    blocks[event.address] = {event.address, size, event.size, stream};
  }
  // Takes [address, address + size) out of the ranges, which may split one.
  void RemoveRange(uint64_t address, uint64_t size) {
    const uint64_t end = address + size;
    auto it = segments.upper_bound(address);
    if (it != segments.begin()) --it;
    while (it != segments.end() && it->first < end) {
      const StartState::Range range = it->second;
      const uint64_t range_end = range.address + range.size;
      if (range_end <= address) {
        ++it;
        continue;
      }
      it = segments.erase(it);
      if (range.address < address) {
        StartState::Range left = range;
        left.size = address - range.address;
        segments[left.address] = left;
      }
      if (range_end > end) {
        StartState::Range right = range;
        right.address = end;
        right.size = range_end - end;
        segments[end] = right;
        break;
      }
    }
  }
};

void UndoEvent(Undo& undo, const Event& event, int64_t stream) {
  switch (event.action()) {
    case Action::kAlloc:
      undo.blocks.erase(event.address);
      break;
    case Action::kFreeCompleted:
      undo.AddBlock(event, stream);
      break;
    case Action::kSegmentAlloc:
      undo.segments.erase(event.address);
      break;
    case Action::kSegmentFree:
      undo.segments[event.address] = {
          event.address, event.size, stream, {0, 0}, event.size == Allocator::kSmallSegment, false};
      break;
    case Action::kSegmentMap:
      undo.Ever(event.address, event.address + event.size);
      undo.RemoveRange(event.address, event.size);
      break;
    case Action::kSegmentUnmap:
      undo.Ever(event.address, event.address + event.size);
      undo.segments[event.address] = {event.address, event.size, stream, {0, 0}, event.size % (20 << 20) != 0,
                                      true};
      break;
    default:
      break;
  }
}

// In the large pool a free block is longer than 1 MiB, so a shorter gap is the unsplit tail of the block
// before it.
void GrowTails(Undo& undo) {
  for (auto& [address, segment] : undo.segments) {
    if (segment.small || segment.expandable) continue;
    auto it = undo.blocks.lower_bound(address);
    while (it != undo.blocks.end() && it->first < address + segment.size) {
      auto next = std::next(it);
      const uint64_t end = next != undo.blocks.end() && next->first < address + segment.size
                               ? next->first
                               : address + segment.size;
      const uint64_t used = it->first + it->second.size;
      if (used < end && end - used <= Allocator::kSmallSize) it->second.size = end - it->first;
      it = next;
    }
  }
}

}  // namespace

StartState UndoTrace(const Snapshot& snapshot, int device) {
  Undo undo(AllocatorConfig::Recorded(snapshot, device));
  for (const Segment& segment : snapshot.segments) {
    if (segment.device != device) continue;
    undo.segments[segment.address] = {segment.address, segment.total_size, segment.stream,
                                      segment.pool,    !segment.large,     segment.expandable};
    if (segment.expandable) undo.Ever(segment.address, segment.address + segment.total_size);
    for (const Block& block : snapshot.BlocksOf(segment)) {
      if (block.state != Block::kInactive)
        undo.blocks[block.address] = {block.address, block.size, block.requested, segment.stream};
    }
  }
  if (const DeviceTrace* trace = snapshot.TraceOf(device)) {
    const auto events = snapshot.EventsOf(*trace);
    for (size_t i = events.size(); i-- > 0;) UndoEvent(undo, events[i], snapshot.ContextOf(events[i]).stream);
  }
  GrowTails(undo);
  StartState start;
  for (const auto& [address, range] : undo.segments) start.segments.push_back(range);
  for (const auto& [address, used] : undo.blocks) start.blocks.push_back(used);
  for (const auto& [begin, end] : undo.ever_mapped) {
    start.reservations.push_back({begin, end - begin, 0, {0, 0}, false, true});
  }
  return start;
}

}  // namespace lowtide::snapshot
