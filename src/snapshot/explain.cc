#include "snapshot/explain.h"

#include <algorithm>

namespace lowtide::snapshot {
namespace {

void CountSegments(const Snapshot& snapshot, DeviceReport& report) {
  for (const Segment& segment : snapshot.segments) {
    if (segment.device != report.device) continue;
    ++report.segments;
    report.reserved += segment.total_size;
    report.allocated += segment.allocated_size;
    report.active += segment.active_size;
    for (const Block& block : snapshot.BlocksOf(segment)) {
      ++report.blocks;
      if (block.state != Block::kInactive) report.requested += block.requested;
    }
  }
}

size_t CountStacks(const Snapshot& snapshot, const DeviceReport& report) {
  std::vector<bool> used = report.lifetimes.stacks;
  for (const Segment& segment : snapshot.segments) {
    if (segment.device != report.device) continue;
    used[segment.stack] = true;
    for (const Block& block : snapshot.BlocksOf(segment)) used[block.stack] = true;
  }
  used[0] = false;
  return static_cast<size_t>(std::count(used.begin(), used.end(), true));
}

void RunReplay(const Snapshot& snapshot, const ExplainOptions& options, DeviceReport& report) {
  if (options.replay.empty() || report.events < 2) return;
  report.check = CheckReplay(snapshot, report.device);
  AllocatorConfig recorded = AllocatorConfig::Recorded(snapshot, report.device);
  const uint64_t room = options.capacity.value_or(AllocatorConfig::kUnlimited);
  if (options.replay == "best") {
    report.search = SearchSettings(snapshot, report.lifetimes, room);
    return;
  }
  AllocatorConfig wanted = recorded;
  wanted.capacity = room;
  wanted.Apply(options.replay);
  report.recorded = Replay(snapshot, report.lifetimes, recorded);
  report.what_if = Replay(snapshot, report.lifetimes, wanted);
}

DeviceReport ExplainDevice(const Snapshot& snapshot, int device, CallSites& sites,
                           const ExplainOptions& options) {
  DeviceReport report;
  report.device = device;
  CountSegments(snapshot, report);
  report.lifetimes = FollowLifetimes(snapshot, device);
  report.events = report.lifetimes.events.size();
  report.stacks = CountStacks(snapshot, report);
  report.fragmentation = MeasureFragmentation(snapshot, device);
  const int64_t at = report.lifetimes.peak_event;
  report.peak = SumHolders(report.lifetimes.AliveAfter(at), report.lifetimes, sites);
  if (at >= 0 && report.lifetimes.events[static_cast<size_t>(at)].flags & Event::kHasTime) {
    report.peak_time_us = report.lifetimes.events[static_cast<size_t>(at)].time_us;
  }
  report.ooms = ExplainOoms(snapshot, report.lifetimes, sites, options.capacity);
  report.growth = JudgeGrowth(snapshot, report.lifetimes, sites);
  RunReplay(snapshot, options, report);
  return report;
}

}  // namespace

Explanation Explain(Snapshot snapshot, const ExplainOptions& options) {
  Explanation out;
  out.snapshot = std::make_unique<Snapshot>(std::move(snapshot));
  out.sites = std::make_unique<CallSites>(*out.snapshot);
  for (int device : out.snapshot->Devices()) {
    out.devices.push_back(ExplainDevice(*out.snapshot, device, *out.sites, options));
  }
  out.findings = FindProblems(out);
  return out;
}

}  // namespace lowtide::snapshot
