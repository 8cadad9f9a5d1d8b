#include "snapshot/oom.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/units.h"

namespace lowtide::snapshot {
namespace {

constexpr size_t kMostExplained = 16;  // oom events with holders and replays; a retry loop may log thousands
constexpr size_t kMostReplayed = 1'000'000;  // events, without being asked for a replay
constexpr uint64_t kOutsideThatMatters = uint64_t{1} << 30;

std::string Bytes(uint64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

// Sorts the free blocks of `allocator` by why they could not serve.
void LookAtFree(const Allocator& allocator, int64_t stream, OomReport& oom) {
  const bool small = Allocator::IsSmall(oom.request);
  std::map<std::string, FreeGroup> groups;
  for (const auto& segment : allocator.segments()) {
    if (segment.dead) continue;
    for (auto id = segment.first; id != Allocator::kNone; id = allocator.block(id).next) {
      const auto& block = allocator.block(id);
      if (block.allocated || !block.mapped) continue;
      oom.free_in_segments += block.size;
      oom.largest_free_block = std::max(oom.largest_free_block, block.size);
      std::string why;
      if (segment.pool != 0) {
        why = "in a private pool (CUDA graph or MemPool)";
      } else if (segment.small != small) {
        why = small ? "in the large pool, which small requests do not use"
                    : "in the small pool, which serves requests of 1 MiB and less";
      } else if (segment.stream != stream) {
        why = fmt::format("cached for stream {:#x}, not for stream {:#x} that asked",
                          static_cast<uint64_t>(segment.stream), static_cast<uint64_t>(stream));
      } else {
        why = "in the same pool and stream, but in pieces too small";
        oom.usable_free += block.size;
        oom.largest_usable_block = std::max(oom.largest_usable_block, block.size);
      }
      FreeGroup& group = groups[why];
      group.why = why;
      group.bytes += block.size;
      group.largest = std::max(group.largest, block.size);
      ++group.blocks;
    }
  }
  for (auto& [why, group] : groups) oom.free_groups.push_back(group);
  std::stable_sort(oom.free_groups.begin(), oom.free_groups.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

void Judge(OomReport& oom, std::optional<uint64_t> capacity, bool expandable) {
  const uint64_t free = oom.device_free.value_or(0);
  if (capacity && *capacity > oom.reserved + free) oom.outside = *capacity - oom.reserved - free;
  const std::string state =
      fmt::format("{} was asked for; PyTorch held {} reserved, of which {} in use; the driver had {} free",
                  Bytes(oom.request), Bytes(oom.reserved), Bytes(oom.allocated),
                  oom.device_free ? Bytes(free) : std::string("an unrecorded amount"));
  if (oom.device_free && free >= oom.driver_request &&
      !(expandable && oom.usable_free == 0 && free < oom.request)) {
    oom.cause = "limit";
    oom.explanation = fmt::format(
        "{}, enough for the {} the driver would have been asked for: a limit stopped it, such as "
        "set_per_process_memory_fraction, and not the device's memory",
        state, Bytes(oom.driver_request));
    return;
  }
  if (oom.usable_free + free >= oom.request || oom.free_in_segments + free >= oom.request) {
    oom.cause = "fragmentation";
    const bool same = oom.usable_free + free >= oom.request;
    oom.explanation = fmt::format("{}; {} more was free inside segments, {}, the largest usable piece {}",
                                  state, Bytes(oom.free_in_segments),
                                  same ? "together enough but in pieces between blocks in use"
                                       : "together enough but for other streams or pools",
                                  Bytes(oom.largest_usable_block));
    return;
  }
  oom.missing = oom.request - std::min(oom.request, oom.free_in_segments + free);
  if (oom.outside && *oom.outside > kOutsideThatMatters && *oom.outside >= oom.missing &&
      *oom.outside * 10 > *capacity) {
    oom.cause = "other";
    oom.explanation = fmt::format(
        "{}; {} of the device is held outside PyTorch's allocator (other processes, the CUDA context, NCCL), "
        "and that is what "
        "was missing ({})",
        state, Bytes(*oom.outside), Bytes(oom.missing));
    return;
  }
  oom.cause = "capacity";
  oom.explanation = fmt::format(
      "{}; even with every free piece inside segments ({}) {} were missing: the work needs more than the "
      "device has",
      state, Bytes(oom.free_in_segments), Bytes(oom.missing));
}

}  // namespace

std::vector<OomReport> ExplainOoms(const Snapshot& snapshot, const Lifetimes& lifetimes, CallSites& sites,
                                   std::optional<uint64_t> capacity) {
  std::vector<OomReport> reports;
  if (!lifetimes.has_oom) return reports;
  const bool expandable = AllocatorConfig::Recorded(snapshot, lifetimes.device).expandable_segments;
  CheckReplay(snapshot, lifetimes.device, [&](size_t index, const Allocator& allocator) {
    const Event& event = lifetimes.events[index];
    OomReport oom;
    oom.event = index;
    if (event.flags & Event::kHasTime) oom.time_us = event.time_us;
    oom.stack = event.stack;
    oom.request = event.size;
    if (event.flags & Event::kHasAddress) oom.device_free = event.address;
    oom.reserved = allocator.stats().reserved;
    oom.allocated = allocator.stats().allocated;
    if (reports.size() < kMostExplained) {
      LookAtFree(allocator, snapshot.ContextOf(event).stream, oom);
    } else {
      oom.free_in_segments = oom.reserved - std::min(oom.reserved, oom.allocated);
    }
    oom.driver_request = expandable ? oom.request - std::min(oom.request, oom.largest_usable_block)
                                    : allocator.SegmentSize(oom.request);
    Judge(oom, capacity, expandable);
    if (reports.size() < kMostExplained) {
      oom.holders = SumHolders(lifetimes.AliveAfter(static_cast<int64_t>(index)), lifetimes, sites);
      oom.requested = oom.holders.bytes;
    }
    reports.push_back(std::move(oom));
  });
  if (!reports.empty() && reports.front().device_free) {
    OomReport& first = reports.front();
    first.remedies = SearchSettings(snapshot, lifetimes, first.reserved + *first.device_free, kMostReplayed);
  }
  return reports;
}

}  // namespace lowtide::snapshot
