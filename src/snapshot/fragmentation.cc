#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "snapshot/oom.h"

namespace lowtide::snapshot {
namespace {

std::string PoolName(const Segment& segment) {
  const char* size = segment.large ? "large" : "small";
  if (segment.pool == std::pair<int64_t, int64_t>{0, 0}) return fmt::format("{} pool", size);
  return fmt::format("private pool ({}, {}), {}", segment.pool.first, segment.pool.second, size);
}

// Of an expandable segment: whole pages inside free blocks, which the allocator can unmap.
uint64_t FreePages(const Snapshot& snapshot, const Segment& segment) {
  const uint64_t page = segment.large ? 20 << 20 : 2 << 20;
  uint64_t bytes = 0;
  for (const Block& block : snapshot.BlocksOf(segment)) {
    if (block.state != Block::kInactive || block.address < segment.address) continue;
    const uint64_t begin = (block.address - segment.address + page - 1) / page * page;
    const uint64_t end = (block.address - segment.address + block.size) / page * page;
    if (end > begin) bytes += end - begin;
  }
  return bytes;
}

std::vector<Fragmentation::Part> Parts(std::map<std::string, Fragmentation::Part>& parts) {
  std::vector<Fragmentation::Part> out;
  for (auto& [name, part] : parts) {
    part.name = name;
    out.push_back(part);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.reserved > b.reserved; });
  return out;
}

}  // namespace

Fragmentation MeasureFragmentation(const Snapshot& snapshot, int device) {
  Fragmentation out;
  std::map<std::string, Fragmentation::Part> streams, pools;
  for (const Segment& segment : snapshot.segments) {
    if (segment.device != device) continue;
    out.reserved += segment.total_size;
    Fragmentation::Part& stream =
        streams[segment.stream ? fmt::format("stream {:#x}", static_cast<uint64_t>(segment.stream))
                               : "stream 0 (default)"];
    Fragmentation::Part& pool = pools[PoolName(segment)];
    uint64_t free = 0, largest = 0, used = 0;
    for (const Block& block : snapshot.BlocksOf(segment)) {
      if (block.state == Block::kInactive) {
        free += block.size;
        largest = std::max(largest, block.size);
        ++out.free_blocks;
        continue;
      }
      ++used;
      out.active += block.size;
      out.requested += block.requested;
      if (block.size > block.requested) out.rounding += block.size - block.requested;
      if (block.state == Block::kPendingFree) out.pending += block.size;
    }
    const uint64_t releasable = segment.expandable ? FreePages(snapshot, segment) : used ? 0 : free;
    out.releasable += releasable;
    out.pinned_free += free - std::min(free, releasable);
    out.largest_free_block = std::max(out.largest_free_block, largest);
    for (Fragmentation::Part* part : {&stream, &pool}) {
      part->reserved += segment.total_size;
      part->free += free;
      part->largest_free = std::max(part->largest_free, largest);
    }
  }
  out.by_stream = Parts(streams);
  out.by_pool = Parts(pools);
  return out;
}

}  // namespace lowtide::snapshot
