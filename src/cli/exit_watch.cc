#include "cli/exit_watch.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/units.h"
#include "record/host.h"

namespace lowtide::cli {
namespace {

constexpr auto kEvery = std::chrono::seconds(1);
constexpr double kLeastSeconds = 60;  // that a leaking run must have left
constexpr double kLeastSteps = 20;
constexpr double kAheadSeconds = 0.5;  // every rank must be asked before it gets to the step

void Take(TightestLimit& best, double used, double limit, const std::string& name) {
  if (limit > 0 && used / limit > best.share)
    best = {used / limit, fmt::format("{} ({})", name, FormatBytes(limit))};
}

// Seconds of a step, from the newest records.
double StepSeconds(const record::Ring& ring) {
  const auto steps = ring.steps();
  if (steps.size() < 2) return 0;
  const auto& first = steps[steps.size() > 32 ? steps.size() - 32 : 0];
  const auto& last = steps.back();
  return last.step > first.step ? static_cast<double>(last.mono_ns - first.mono_ns) / 1e9 /
                                      static_cast<double>(last.step - first.step)
                                : 0;
}

}  // namespace

TightestLimit FindTightest(const std::vector<record::Ring*>& rings, const char* proc_root) {
  TightestLimit best;
  bool host = false;
  for (record::Ring* ring : rings) {
    const record::MemoryLimits limits = record::ReadLimits(proc_root, ring->header().pid);
    if (!host && limits.host_available_bytes != record::kAbsent) {
      host = true;
      const auto total = static_cast<double>(limits.host_total_bytes);
      Take(best, total - static_cast<double>(limits.host_available_bytes), total, "the host's memory");
    }
    if (limits.cgroup_limit_bytes != record::kAbsent && limits.cgroup_used_bytes != record::kAbsent) {
      Take(best, static_cast<double>(limits.cgroup_used_bytes),
           static_cast<double>(limits.cgroup_limit_bytes), "the memory of the container");
    }
    const auto devices = ring->devices();
    for (size_t i = devices.size() > 16 ? devices.size() - 16 : 0; i < devices.size(); ++i) {
      const record::DeviceEntry& entry = ring->header().devices[devices[i].pool % record::kMaxDevices];
      if (entry.capacity_bytes == record::kAbsent) continue;
      // What the caching allocator holds free serves the next request: it is not in use.
      Take(best, static_cast<double>(devices[i].allocated_bytes), static_cast<double>(entry.capacity_bytes),
           fmt::format("device {} of rank {}", static_cast<int>(entry.index), ring->header().rank));
    }
  }
  return best;
}

std::string ExitWatch::Look(const std::vector<record::Ring*>& rings) {
  if (share_ <= 0 || asked_ || rings.empty() || std::chrono::steady_clock::now() < next_) return "";
  next_ = std::chrono::steady_clock::now() + kEvery;
  const TightestLimit tightest = FindTightest(rings);
  if (tightest.share < share_) return "";
  return Ask(rings, record::StopReason::kMemory,
             fmt::format("{} is {:.1f} % full", tightest.name, 100 * tightest.share));
}

std::string ExitWatch::Leak(const std::vector<record::Ring*>& rings, const verdict::Judgement& judgement) {
  if (share_ <= 0 || asked_ || rings.empty() || !judgement.steps_to_oom) return "";
  double seconds = 0;
  for (const record::Ring* ring : rings) seconds = std::max(seconds, StepSeconds(*ring));
  const double left = std::max(0.0, *judgement.steps_to_oom);
  if (left > kLeastSteps && left * seconds > kLeastSeconds) return "";
  return Ask(rings, record::StopReason::kLeak,
             fmt::format("a leak leaves {:.0f} steps ({:.0f} s)", left, left * seconds));
}

std::string ExitWatch::Ask(const std::vector<record::Ring*>& rings, record::StopReason reason,
                           std::string why) {
  uint64_t step = 0;
  for (const record::Ring* ring : rings) {
    if (!ring->steps().empty()) step = std::max(step, ring->steps().back().step);
  }
  if (step == 0) return "";  // nothing trains yet
  double seconds = 0;
  for (const record::Ring* ring : rings) seconds = std::max(seconds, StepSeconds(*ring));
  step += seconds > 0 ? static_cast<uint64_t>(std::min(kAheadSeconds / seconds, 1e6)) + 2 : 2;
  for (record::Ring* ring : rings) {
    if (!ring->steps().empty()) asked_ |= ring->RequestStopAt(step, reason);
  }
  return asked_ ? fmt::format("{}: the script is asked to end at step {}", why, step) : "";
}

}  // namespace lowtide::cli
