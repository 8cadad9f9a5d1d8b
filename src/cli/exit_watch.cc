#include "cli/exit_watch.h"

#include <algorithm>

#include "base/units.h"
#include "lowtide/record/host.h"

namespace lowtide::cli {
namespace {

using report::Phrase;

constexpr auto kEvery = std::chrono::seconds(1);
constexpr double kLeastSeconds = 60;  // that a leaking run must have left
constexpr double kLeastSteps = 20;
constexpr double kAheadSeconds = 0.5;  // every rank must be asked before it gets to the step

// `name` makes the limit's name from its size.
template <typename Name>
void Take(TightestLimit& best, int64_t used, int64_t limit, Name name) {
  const double share = limit > 0 ? static_cast<double>(used) / static_cast<double>(limit) : 0;
  if (share > best.share) best = {share, name(FormatBytes(static_cast<double>(limit)))};
}

// Seconds of a step, from the newest records of the slowest rank.
double StepSeconds(const std::vector<record::Ring*>& rings) {
  double seconds = 0;
  for (const record::Ring* ring : rings) {
    const auto& steps = ring->steps();
    if (steps.size() < 2) continue;
    const auto& first = steps[steps.size() > 32 ? steps.size() - 32 : 0];
    const auto& last = steps.back();
    if (last.step <= first.step) continue;
    seconds = std::max(seconds, static_cast<double>(last.mono_ns - first.mono_ns) / 1e9 /
                                    static_cast<double>(last.step - first.step));
  }
  return seconds;
}

}  // namespace

TightestLimit FindTightest(const std::vector<record::Ring*>& rings, const report::Words& words, const char* proc_root) {
  TightestLimit best;
  for (const record::Ring* ring : rings) {
    const record::MemoryLimits limits = record::ReadLimits(proc_root, ring->header().pid);
    if (limits.host_available_bytes != record::kAbsent) {
      Take(best, limits.host_total_bytes - limits.host_available_bytes, limits.host_total_bytes,
           [&](const std::string& size) { return words.Say(Phrase::kLimitHost, size); });
    }
    if (limits.cgroup_limit_bytes != record::kAbsent && limits.cgroup_used_bytes != record::kAbsent) {
      Take(best, limits.cgroup_used_bytes, limits.cgroup_limit_bytes,
           [&](const std::string& size) { return words.Say(Phrase::kLimitContainer, size); });
    }
    const auto& devices = ring->devices();
    for (size_t i = devices.size() > record::kMaxDevices ? devices.size() - record::kMaxDevices : 0; i < devices.size(); ++i) {
      const record::DeviceEntry& entry = ring->header().devices[devices[i].pool % record::kMaxDevices];
      // What the caching allocator holds free serves the next request: it is not in use.
      Take(best, devices[i].allocated_bytes, entry.capacity_bytes, [&](const std::string& size) {
        return words.Say(Phrase::kLimitDevice, static_cast<int>(entry.index), ring->header().rank, size);
      });
    }
  }
  return best;
}

std::string ExitWatch::Look(const std::vector<record::Ring*>& rings) {
  if (share_ <= 0 || asked_ || rings.empty() || std::chrono::steady_clock::now() < next_) return "";
  next_ = std::chrono::steady_clock::now() + kEvery;
  const TightestLimit tightest = FindTightest(rings, words_);
  const uint64_t step = tightest.share < share_ ? 0 : Ask(rings, record::StopReason::kMemory);
  return step == 0 ? "" : words_.Say(Phrase::kEndsFull, tightest.name, 100 * tightest.share, step);
}

std::string ExitWatch::Leak(const std::vector<record::Ring*>& rings, const verdict::Judgement& judgement) {
  if (share_ <= 0 || asked_ || rings.empty() || !judgement.steps_to_oom) return "";
  const double left = std::max(0.0, *judgement.steps_to_oom), seconds = left * StepSeconds(rings);
  if (left > kLeastSteps && seconds > kLeastSeconds) return "";
  const uint64_t step = Ask(rings, record::StopReason::kLeak);
  return step == 0 ? "" : words_.Say(Phrase::kEndsLeak, left, seconds, step);
}

uint64_t ExitWatch::Ask(const std::vector<record::Ring*>& rings, record::StopReason reason) {
  uint64_t step = 0;
  for (const record::Ring* ring : rings) {
    if (!ring->steps().empty()) step = std::max(step, ring->steps().back().step);
  }
  if (step == 0) return 0;
  const double seconds = StepSeconds(rings);
  step += seconds > 0 ? static_cast<uint64_t>(std::min(kAheadSeconds / seconds, 1e6)) + 2 : 2;
  for (record::Ring* ring : rings) {
    if (!ring->steps().empty()) asked_ |= ring->RequestStopAt(step, reason);
  }
  return asked_ ? step : 0;
}

}  // namespace lowtide::cli
