// What the allocator asks of the driver and gives back: segments, expandable ranges, and the ladder before it
// gives up.
#include <algorithm>

#include "snapshot/allocator.h"

namespace lowtide::snapshot {
namespace {
constexpr uint64_t kRangeBytes = uint64_t{1} << 40;  // address space of a made-up expandable range
}

void Allocator::Reserve(uint64_t bytes) {
  stats_.reserved += bytes;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  ++stats_.driver_allocs;
}

bool Allocator::Fits(uint64_t bytes) const {
  const uint64_t most = std::min(config_.capacity, config_.limit);
  return stats_.reserved <= most && bytes <= most - stats_.reserved;
}

uint32_t Allocator::AddSegment(uint64_t address, uint64_t size, int64_t stream, uint32_t pool, bool small,
                               bool expandable) {
  if (address == 0) {
    address = next_address_;
    next_address_ += (expandable ? kRangeBytes : size) + (2 << 20);
  }
  Segment segment;
  segment.address = address;
  segment.size = expandable ? 0 : size;
  segment.pool = pool;
  segment.stream = stream;
  segment.small = small;
  segment.expandable = expandable;
  segment.first = NewBlock();
  const auto id = static_cast<uint32_t>(segments_.size());
  Block& block = blocks_[segment.first];
  block.address = address;
  block.size = size;
  block.segment = id;
  block.mapped = !expandable;
  segments_.push_back(segment);
  segment_at_[address] = id;
  FreeOf(pool, small);
  if (!expandable) {
    InsertFree(segment.first);
    Reserve(size);
    stats_.peak_segments = std::max(stats_.peak_segments, ++stats_.segments);
  }
  return id;
}

void Allocator::RemoveSegment(uint32_t id) {
  Segment& segment = segments_[id];
  for (BlockId block = segment.first; block != kNone;) {
    const BlockId next = blocks_[block].next;
    if (blocks_[block].allocated) {
      stats_.allocated -= blocks_[block].size;
    } else if (blocks_[block].mapped) {
      EraseFree(block);
    }
    Drop(block);
    block = next;
  }
  Unreserve(segment.size);
  ++stats_.driver_frees;
  --stats_.segments;
  segment.dead = true;
  segment_at_.erase(segment.address);
}

// Turns the unmapped parts of [address, address + size) into one free block, merged with its free neighbours.
void Allocator::MapRange(uint64_t address, uint64_t size, int64_t stream, uint32_t pool, bool small) {
  BlockId id = BlockAt(address);
  if (id == kNone) {
    AddSegment(address, std::max(size, uint64_t{1} << 36), stream, pool, small, true);
    id = BlockAt(address);
  }
  const uint64_t end = address + size;
  while (id != kNone && blocks_[id].address < end) {
    if (blocks_[id].mapped) {
      id = blocks_[id].next;
      continue;
    }
    if (blocks_[id].address < address) id = SplitAt(id, address - blocks_[id].address);
    if (blocks_[id].address + blocks_[id].size > end) SplitAt(id, end - blocks_[id].address);
    blocks_[id].mapped = true;
    segments_[blocks_[id].segment].size += blocks_[id].size;
    Reserve(blocks_[id].size);
    id = Coalesce(id);
    InsertFree(id);
    id = blocks_[id].next;
  }
}

// Unmaps [begin, end) of a free mapped block; returns the bytes.
uint64_t Allocator::Unmap(BlockId id, uint64_t begin, uint64_t end) {
  if (begin >= end) return 0;
  EraseFree(id);
  if (begin > blocks_[id].address) {
    const BlockId tail = SplitAt(id, begin - blocks_[id].address);
    InsertFree(id);
    id = tail;
  }
  if (end < blocks_[id].address + blocks_[id].size) InsertFree(SplitAt(id, end - blocks_[id].address));
  blocks_[id].mapped = false;
  segments_[blocks_[id].segment].size -= end - begin;
  Unreserve(end - begin);
  ++stats_.driver_frees;
  Coalesce(id);
  return end - begin;
}

void Allocator::UnmapRange(uint64_t address, uint64_t size) {
  const uint64_t end = address + size;
  for (BlockId id = BlockAt(address); id != kNone && blocks_[id].address < end;) {
    const BlockId next = blocks_[id].next;
    if (blocks_[id].mapped && !blocks_[id].allocated) {
      Unmap(id, std::max(address, blocks_[id].address),
            std::min(end, blocks_[id].address + blocks_[id].size));
    }
    id = next == kNone ? kNone : BlockAt(std::max(blocks_[next].address, address));
    if (id != kNone && blocks_[id].address + blocks_[id].size >= end && !blocks_[id].mapped) break;
  }
}

void Allocator::UnmapFree(uint32_t segment) {
  const uint64_t page = Page(segments_[segment].small);
  const uint64_t base = segments_[segment].address;
  for (BlockId id = segments_[segment].first; id != kNone;) {
    const BlockId next = blocks_[id].next;
    const Block& b = blocks_[id];
    if (b.mapped && !b.allocated) {
      const uint64_t begin = base + (b.address - base + page - 1) / page * page;
      const uint64_t end = base + (b.address + b.size - base) / page * page;
      const bool whole = begin == b.address && end == b.address + b.size;
      Unmap(id, begin, end);
      // Coalescing may have swallowed the neighbours; start over from a block that is certainly there.
      id = whole || begin < end ? BlockAt(end) : next;
      if (id != kNone && !blocks_[id].mapped) id = blocks_[id].next;
      continue;
    }
    id = next;
  }
}

Allocator::BlockId Allocator::Expand(uint64_t rounded, int64_t stream, uint32_t pool) {
  const bool small = IsSmall(rounded);
  auto usable = [&](BlockId id) { return id != kNone && !blocks_[id].allocated; };
  auto room = [&](BlockId id) {
    uint64_t bytes = 0;
    for (; bytes < rounded && usable(id); id = blocks_[id].next) bytes += blocks_[id].size;
    return bytes >= rounded;
  };
  BlockId candidate = kNone;
  for (uint32_t i = 0; i < segments_.size() && candidate == kNone; ++i) {
    const Segment& segment = segments_[i];
    if (!segment.expandable || segment.dead || segment.stream != stream || segment.pool != pool ||
        segment.small != small)
      continue;
    for (BlockId id = segment.first; id != kNone && walk_left_ > 0; id = blocks_[id].next, --walk_left_) {
      if (blocks_[id].mapped) continue;
      const BlockId from = usable(blocks_[id].prev) ? blocks_[id].prev : id;
      if (room(from)) {
        candidate = from;
        break;
      }
    }
  }
  if (candidate == kNone) candidate = segments_[AddSegment(0, kRangeBytes, stream, pool, small, true)].first;
  const uint64_t page = Page(small);
  // Maps pages after the free part until it is long enough; what was mapped stays mapped when the driver says
  // no.
  for (;;) {
    const BlockId to_map = blocks_[candidate].mapped ? blocks_[candidate].next : candidate;
    const uint64_t have = blocks_[candidate].mapped ? blocks_[candidate].size : 0;
    if (have >= rounded) return candidate;
    if (to_map == kNone || blocks_[to_map].mapped) return kNone;
    const uint64_t wanted = std::min((rounded - have + page - 1) / page * page, blocks_[to_map].size);
    if (wanted == 0 || !Fits(wanted)) return kNone;
    const uint64_t address = blocks_[to_map].address;
    const uint32_t segment = blocks_[to_map].segment;
    MapRange(address, wanted, stream, pool, small);
    candidate = kNone;
    for (BlockId id = segments_[segment].first; id != kNone && walk_left_ > 0;
         id = blocks_[id].next, --walk_left_) {
      if (address < blocks_[id].address + blocks_[id].size) {
        candidate = id;
        break;
      }
    }
    if (candidate == kNone) return kNone;
  }
}

Allocator::BlockId Allocator::FromDriver(uint64_t rounded, int64_t stream, uint32_t pool) {
  if (config_.expandable_segments) return Expand(rounded, stream, pool);
  const uint64_t size = SegmentSize(rounded);
  if (!Fits(size)) return kNone;
  return segments_[AddSegment(0, size, stream, pool, IsSmall(rounded))].first;
}

Allocator::BlockId Allocator::Malloc(uint64_t size, int64_t stream, uint32_t pool) {
  const uint64_t rounded = Round(size);
  ++lookups_;
  BlockId id = FindFree(rounded, stream, pool);
  if (id != kNone) return Allocate(id, rounded);
  const uint64_t most = std::min(config_.capacity, config_.limit);
  if (config_.garbage_collection_threshold > 0 && most != AllocatorConfig::kUnlimited)
    CollectGarbage(SegmentSize(rounded));
  id = FromDriver(rounded, stream, pool);
  if (id == kNone && config_.max_split_size != AllocatorConfig::kUnlimited &&
      ReleaseOversize(rounded, stream, pool)) {
    id = FromDriver(rounded, stream, pool);
  }
  if (id == kNone) {
    ReleaseCached();
    ++stats_.retries;
    id = FromDriver(rounded, stream, pool);
  }
  return id == kNone ? kNone : Allocate(id, rounded);
}

// Whole free segments of the default large pool, older than the average, until enough is back.
void Allocator::CollectGarbage(uint64_t) {
  const double most = static_cast<double>(std::min(config_.capacity, config_.limit));
  const auto threshold = static_cast<uint64_t>(config_.garbage_collection_threshold * most);
  if (stats_.reserved <= threshold) return;
  const uint64_t target = stats_.reserved - threshold;
  uint64_t freed = 0;
  for (bool progress = true; progress && freed < target;) {
    progress = false;
    std::vector<BlockId> whole;
    double age = 0;
    for (const FreeKey& key : FreeOf(0, false)) {
      const Block& b = blocks_[key.block];
      if (b.prev != kNone || b.next != kNone || segments_[b.segment].expandable) continue;
      whole.push_back(key.block);
      age += static_cast<double>(lookups_ - b.freed_at);
    }
    if (whole.empty()) return;
    age /= static_cast<double>(whole.size());
    for (BlockId id : whole) {
      if (freed >= target) return;
      if (static_cast<double>(lookups_ - blocks_[id].freed_at) < age) continue;
      freed += blocks_[id].size;
      RemoveSegment(blocks_[id].segment);
      progress = true;
    }
  }
}

// max_split_size only: just enough oversize free blocks of this pool and stream.
bool Allocator::ReleaseOversize(uint64_t rounded, int64_t stream, uint32_t pool) {
  const uint64_t needed = std::max(rounded, config_.max_split_size);
  FreeSet& set = FreeOf(pool, IsSmall(rounded));
  auto whole = [&](const FreeKey& key) {
    const Block& b = blocks_[key.block];
    return key.stream == stream && b.prev == kNone && b.next == kNone && !segments_[b.segment].expandable;
  };
  for (auto it = set.lower_bound({stream, needed, 0, 0}); it != set.end() && it->stream == stream; ++it) {
    if (!whole(*it)) continue;
    RemoveSegment(blocks_[it->block].segment);
    return true;
  }
  std::vector<FreeKey> large;
  for (const FreeKey& key : set) {
    if (whole(key) && key.size >= config_.max_split_size) large.push_back(key);
  }
  uint64_t freed = 0;
  for (auto it = large.rbegin(); it != large.rend() && freed < needed; ++it) {
    freed += it->size;
    RemoveSegment(blocks_[it->block].segment);
  }
  return freed >= needed;
}

void Allocator::ReleaseCached() {
  for (uint32_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    if (segment.dead) continue;
    if (segment.expandable) {
      UnmapFree(i);
    } else if (!blocks_[segment.first].allocated && blocks_[segment.first].next == kNone) {
      RemoveSegment(i);
    }
  }
}

}  // namespace lowtide::snapshot
