#include "snapshot/allocator.h"

#include <algorithm>
#include <bit>

namespace lowtide::snapshot {
namespace {
constexpr uint64_t kMostBytes = uint64_t{1} << 48;  // of a request: more is damage, and must not overflow
}

uint64_t Allocator::Round(uint64_t size) const {
  size += config_.padding;
  if (size < kMinBlock) return kMinBlock;
  if (size > kMostBytes) return kMostBytes;
  const int log = std::bit_width(size) - 1;
  const auto index = static_cast<size_t>(std::clamp(log - 20, 0, 15));
  const uint64_t divisions = config_.roundup_power2_divisions[index];
  if (divisions > 1 && size > kMinBlock * divisions) {
    if (std::has_single_bit(size)) return size;
    const uint64_t floor = std::bit_floor(size);
    const uint64_t step = floor >> (std::bit_width(divisions) - 1);
    if (step == 0) return floor * 2;
    return (size + step - 1) / step * step;
  }
  return (size + kMinBlock - 1) / kMinBlock * kMinBlock;
}

uint64_t Allocator::SegmentSize(uint64_t rounded) const {
  if (rounded > kMostBytes) return kMostBytes;
  if (rounded <= kSmallSize) return kSmallSegment;
  if (rounded < kMinLargeAlloc) return config_.large_segment_size;
  return (rounded + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
}

Allocator::FreeSet& Allocator::FreeOf(uint32_t pool, bool small) {
  const size_t index = 2 * size_t{pool} + small;
  if (pools_.size() <= index) pools_.resize(index + 1);
  return pools_[index];
}

const Allocator::FreeSet* Allocator::FindPool(uint32_t pool, bool small) const {
  const size_t index = 2 * size_t{pool} + small;
  return index < pools_.size() ? &pools_[index] : nullptr;
}

Allocator::BlockId Allocator::NewBlock() {
  if (!unused_.empty()) {
    const BlockId id = unused_.back();
    unused_.pop_back();
    blocks_[id] = Block();
    return id;
  }
  blocks_.emplace_back();
  return static_cast<BlockId>(blocks_.size() - 1);
}

void Allocator::Drop(BlockId id) {
  blocks_[id].allocated = false;
  unused_.push_back(id);
}

void Allocator::InsertFree(BlockId id) {
  const Block& b = blocks_[id];
  const Segment& segment = segments_[b.segment];
  Pool(segment).insert({segment.stream, b.size, b.address, id});
}

void Allocator::EraseFree(BlockId id) {
  const Block& b = blocks_[id];
  const Segment& segment = segments_[b.segment];
  Pool(segment).erase({segment.stream, b.size, b.address, id});
}

bool Allocator::Mergeable(BlockId a, BlockId b) const {
  return a != kNone && b != kNone && !blocks_[a].allocated && !blocks_[b].allocated &&
         blocks_[a].mapped == blocks_[b].mapped;
}

// Both outside the free set.
Allocator::BlockId Allocator::MergeInto(BlockId left, BlockId right) {
  Block& l = blocks_[left];
  const Block& r = blocks_[right];
  l.size += r.size;
  l.next = r.next;
  if (r.next != kNone) blocks_[r.next].prev = left;
  l.freed_at = std::max(l.freed_at, r.freed_at);
  Drop(right);
  return left;
}

// Merges a free block that is not in the free set with its free neighbours; the result is not in the set
// either.
Allocator::BlockId Allocator::Coalesce(BlockId id) {
  const BlockId next = blocks_[id].next;
  if (Mergeable(id, next)) {
    if (blocks_[next].mapped) EraseFree(next);
    id = MergeInto(id, next);
  }
  const BlockId prev = blocks_[id].prev;
  if (Mergeable(prev, id)) {
    if (blocks_[prev].mapped) EraseFree(prev);
    id = MergeInto(prev, id);
  }
  return id;
}

// The block keeps `size` bytes; the rest becomes a new block after it, of the same state, in no set.
Allocator::BlockId Allocator::SplitAt(BlockId id, uint64_t size) {
  const BlockId tail = NewBlock();
  Block& b = blocks_[id];
  Block& t = blocks_[tail];
  t = b;
  t.address = b.address + size;
  t.size = b.size - size;
  t.prev = id;
  if (b.next != kNone) blocks_[b.next].prev = tail;
  b.next = tail;
  b.size = size;
  return tail;
}

bool Allocator::ShouldSplit(const Block& block, uint64_t rounded, const Segment& segment) const {
  const uint64_t remaining = block.size - rounded;
  if (segment.small || config_.expandable_segments) return remaining >= kMinBlock;
  return rounded < config_.max_split_size && remaining > kSmallSize;
}

Allocator::BlockId Allocator::FindFree(uint64_t rounded, int64_t stream, uint32_t pool) const {
  const FreeSet* set = FindPool(pool, IsSmall(rounded));
  if (!set) return kNone;
  auto it = set->lower_bound({stream, rounded, 0, 0});
  auto mine = [&] { return it != set->end() && it->stream == stream; };
  if (!config_.expandable_segments) {
    while (mine() && segments_[blocks_[it->block].segment].expandable) ++it;
  }
  if (!mine()) return kNone;
  const bool expandable = segments_[blocks_[it->block].segment].expandable;
  if (expandable && config_.expandable_segments) {
    // Of blocks that serve alike, the one that can grow least.
    auto grown = [&](const FreeKey& key) {
      const BlockId next = blocks_[key.block].next;
      return key.size + (next != kNone && !blocks_[next].mapped ? blocks_[next].size : 0);
    };
    auto after = std::next(it);
    while (after != set->end() && after->stream == stream && grown(*after) < grown(*it)) {
      it = after;
      ++after;
    }
  }
  const uint64_t size = it->size;
  if (rounded < config_.max_split_size && size >= config_.max_split_size) return kNone;
  if (rounded >= config_.max_split_size && size >= rounded + config_.max_non_split_rounding) return kNone;
  return it->block;
}

Allocator::BlockId Allocator::Allocate(BlockId id, uint64_t rounded) {
  EraseFree(id);
  if (ShouldSplit(blocks_[id], rounded, segments_[blocks_[id].segment])) InsertFree(SplitAt(id, rounded));
  blocks_[id].allocated = true;
  stats_.allocated += blocks_[id].size;
  stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
  return id;
}

void Allocator::Free(BlockId id) {
  Block& b = blocks_[id];
  if (!b.allocated) return;  // its segment was taken away under it
  stats_.allocated -= b.size;
  b.allocated = false;
  b.freed_at = lookups_;
  InsertFree(Coalesce(id));
}

Allocator::BlockId Allocator::BlockAt(uint64_t address) const {
  const auto segment = SegmentAt(address);
  if (!segment) return kNone;
  for (BlockId id = segments_[*segment].first; id != kNone && walk_left_ > 0;
       id = blocks_[id].next, --walk_left_) {
    if (address < blocks_[id].address + blocks_[id].size) return id;
  }
  return kNone;
}

std::optional<uint32_t> Allocator::SegmentAt(uint64_t address) const {
  auto it = segment_at_.upper_bound(address);
  if (it == segment_at_.begin()) return std::nullopt;
  const Segment& segment = segments_[std::prev(it)->second];
  BlockId last = segment.first;
  uint64_t end = segment.address + segment.size;
  if (segment.expandable) {
    end = segment.address;
    for (; last != kNone && walk_left_ > 0; last = blocks_[last].next, --walk_left_)
      end = blocks_[last].address + blocks_[last].size;
  }
  if (address >= end) return std::nullopt;
  return std::prev(it)->second;
}

Allocator::BlockId Allocator::Carve(uint64_t address, uint64_t size) {
  BlockId id = BlockAt(address);
  if (id == kNone || blocks_[id].allocated || !blocks_[id].mapped) return kNone;
  size = std::min(size, blocks_[id].address + blocks_[id].size - address);
  EraseFree(id);
  if (address > blocks_[id].address) {
    const BlockId tail = SplitAt(id, address - blocks_[id].address);
    InsertFree(id);
    id = tail;
  }
  if (size < blocks_[id].size) InsertFree(SplitAt(id, size));
  blocks_[id].allocated = true;
  stats_.allocated += blocks_[id].size;
  stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
  return id;
}

}  // namespace lowtide::snapshot
