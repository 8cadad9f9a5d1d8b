// Where steps end: annotations, else what the optimizer does, else a call site that comes back at even
// distances.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "snapshot/growth.h"

namespace lowtide::snapshot {
namespace {

constexpr size_t kLeastSteps = 3;

// Event numbers of the times given, which ascend as the events do but for a few microseconds.
std::vector<size_t> AtTimes(std::span<const Event> events, const std::vector<int64_t>& times) {
  std::vector<size_t> at;
  for (int64_t time : times) {
    const auto found = std::partition_point(events.begin(), events.end(),
                                            [&](const Event& event) { return event.time_us < time; });
    const auto event = static_cast<size_t>(found - events.begin());
    if (event > 0 && event < events.size() && (at.empty() || at.back() < event)) at.push_back(event);
  }
  return at;
}

std::vector<int64_t> Marks(const Snapshot& snapshot, int device, std::string_view prefix, bool start) {
  const bool any_here =
      std::any_of(snapshot.annotations.begin(), snapshot.annotations.end(), [&](const Annotation& a) {
        return a.device == device && snapshot.names.text(a.name).starts_with(prefix);
      });
  std::vector<int64_t> times;
  for (const Annotation& annotation : snapshot.annotations) {
    if (any_here && annotation.device != device) continue;
    if (annotation.start == start && snapshot.names.text(annotation.name).starts_with(prefix))
      times.push_back(annotation.time_us);
  }
  std::sort(times.begin(), times.end());
  return times;
}

bool HasTimes(std::span<const Event> events) {
  return !events.empty() && events.back().flags & Event::kHasTime;
}

// The first event after each run of the optimizer's own; runs are told apart by work between them.
std::vector<size_t> OptimizerRuns(std::span<const Event> events, CallSites& sites) {
  constexpr size_t kBetween = 32;  // events of something else
  std::vector<size_t> ends;
  size_t last = 0;
  bool seen = false;
  for (size_t i = 0; i < events.size(); ++i) {
    if (!events[i].stack || !(sites.Of(events[i].stack).traits & CallSite::kOptimizer)) continue;
    if (seen && i - last > kBetween) ends.push_back(last + 1);
    last = i;
    seen = true;
  }
  if (seen && last + 1 < events.size()) ends.push_back(last + 1);
  return ends;
}

// An allocating stack whose events come at even distances (in events), preferring the one that spans most of
// the trace with the number of visits that most stacks share.
std::vector<size_t> Period(std::span<const Event> events, uint32_t stack_count) {
  std::vector<uint32_t> visits(stack_count);
  for (const Event& event : events) {
    if (event.action() == Action::kAlloc && event.stack) ++visits[event.stack];
  }
  std::vector<uint32_t> with_visits;  // how many stacks have n visits
  for (uint32_t n : visits) {
    if (n < kLeastSteps || n > events.size() / 4) continue;
    if (with_visits.size() <= n) with_visits.resize(n + 1);
    ++with_visits[n];
  }
  // Early and late stacks may miss a visit at the trace's ends: neighbours count together.
  size_t best = 0, best_score = 0;
  for (size_t n = kLeastSteps; n < with_visits.size(); ++n) {
    const size_t score = with_visits[n] + (n + 1 < with_visits.size() ? with_visits[n + 1] : 0);
    if (score > best_score) {
      best = n;
      best_score = score;
    }
  }
  if (best_score < 2) return {};
  std::vector<std::vector<size_t>> at(stack_count);
  for (size_t i = 0; i < events.size(); ++i) {
    const uint32_t stack = events[i].stack;
    if (events[i].action() == Action::kAlloc && stack && (visits[stack] == best || visits[stack] == best + 1))
      at[stack].push_back(i);
  }
  const std::vector<size_t>* chosen = nullptr;
  double chosen_spread = 0.35;
  for (const auto& positions : at) {
    if (positions.size() < kLeastSteps) continue;
    double mean = 0, square = 0;
    for (size_t i = 1; i < positions.size(); ++i) {
      const double gap = static_cast<double>(positions[i] - positions[i - 1]);
      mean += gap;
      square += gap * gap;
    }
    const double n = static_cast<double>(positions.size() - 1);
    mean /= n;
    const double spread = std::sqrt(std::max(0.0, square / n - mean * mean)) / mean;
    if (spread < chosen_spread && mean * n > 0.5 * static_cast<double>(events.size())) {
      chosen = &positions;
      chosen_spread = spread;
    }
  }
  return chosen ? *chosen : std::vector<size_t>();
}

// Layers come back at even distances, too. A period is a step of training when each holds both forward and
// backward work; where the trace has no backward, when what is born in a period mostly dies in it.
bool AreSteps(const Lifetimes& lifetimes, const std::vector<size_t>& ends, CallSites& sites) {
  const auto events = lifetimes.events;
  auto is_backward = [&](const Event& event) {
    return event.flags & Event::kEmptyStack ||
           (event.stack && sites.Of(event.stack).traits & CallSite::kBackward);
  };
  const bool training = std::any_of(events.begin(), events.end(), is_backward);
  size_t good = 0;
  for (size_t step = 1; step < ends.size(); ++step) {
    bool backward = false, forward = false;
    uint64_t born = 0, kept = 0;
    for (size_t i = ends[step - 1]; i < ends[step]; ++i) {
      if (events[i].action() != Action::kAlloc) continue;
      (is_backward(events[i]) ? backward : forward) = true;
      born += events[i].size;
      if (lifetimes.partner[i] == Lifetimes::kNever || lifetimes.partner[i] >= ends[step])
        kept += events[i].size;
    }
    good += training ? backward && forward : kept <= born / 5;
  }
  return good * 5 >= (ends.size() - 1) * 4;
}

}  // namespace

Steps FindSteps(const Snapshot& snapshot, const Lifetimes& lifetimes, CallSites& sites) {
  Steps steps;
  const auto events = lifetimes.events;
  auto take = [&](std::vector<size_t> ends, const char* how) {
    if (ends.size() < kLeastSteps || !steps.ends.empty()) return;
    steps.ends = std::move(ends);
    steps.how = how;
  };
  if (HasTimes(events)) {
    take(AtTimes(events, Marks(snapshot, lifetimes.device, "ProfilerStep#", true)),
         "ProfilerStep annotations");
    take(AtTimes(events, Marks(snapshot, lifetimes.device, "Optimizer.step#", false)),
         "Optimizer.step annotations");
  }
  if (steps.ends.empty()) take(OptimizerRuns(events, sites), "the optimizer's own allocations");
  if (steps.ends.empty()) {
    std::vector<size_t> ends = Period(events, snapshot.names.stack_count());
    if (ends.size() >= kLeastSteps && AreSteps(lifetimes, ends, sites))
      take(std::move(ends), "a period found in the trace");
  }
  return steps;
}

}  // namespace lowtide::snapshot
