#include "snapshot/growth.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/units.h"

namespace lowtide::snapshot {
namespace {

constexpr uint64_t kLeastJudged = 4;  // full steps after warm-up
constexpr size_t kMostStacks = 64;    // looked at closely
constexpr size_t kMostPoints = 400;   // of a curve, for the quadratic estimators

struct Survivors {
  uint64_t bytes = 0, blocks = 0, steps = 0;
  uint32_t last_step = 0xffffffff;
};

// The part of the steps that is judged: complete ones, without the first (set-up) and what follows the last
// mark.
struct Window {
  size_t first = 0, last = 0;  // indices of ends: levels are read at ends[first] .. ends[last]
};

uint32_t StepOf(const Steps& steps, size_t event) {
  return static_cast<uint32_t>(std::upper_bound(steps.ends.begin(), steps.ends.end(), event) -
                               steps.ends.begin());
}

std::unordered_map<StackId, Survivors> FindSurvivors(const Lifetimes& lifetimes, const Steps& steps,
                                                     const Window& window) {
  std::unordered_map<StackId, Survivors> found;
  const size_t begin = steps.ends[window.first], end = steps.ends[window.last];
  uint32_t step = StepOf(steps, begin);
  for (size_t i = begin; i < end; ++i) {
    while (step < steps.ends.size() && steps.ends[step] <= i) ++step;
    const Event& event = lifetimes.events[i];
    if (event.action() != Action::kAlloc || lifetimes.partner[i] != Lifetimes::kNever) continue;
    Survivors& mine = found[event.stack];
    mine.bytes += event.size;
    ++mine.blocks;
    if (mine.last_step != step) ++mine.steps;
    mine.last_step = step;
  }
  return found;
}

// What each of `stacks` holds at each step end of the window, born in the trace; one pass over the events.
std::vector<std::vector<double>> HeldAtEnds(const Lifetimes& lifetimes, const Steps& steps,
                                            const Window& window, const std::vector<StackId>& stacks,
                                            uint32_t stack_count) {
  const size_t count = window.last - window.first + 1;
  constexpr uint8_t kNone = 255;
  std::vector<uint8_t> row_of(stack_count, kNone);
  for (size_t row = 0; row < stacks.size(); ++row) row_of[stacks[row]] = static_cast<uint8_t>(row);
  std::vector<std::vector<double>> held(stacks.size(), std::vector<double>(count + 1));
  auto bucket = [&](uint32_t step) -> size_t {  // counted at the first end after it
    return step <= window.first ? 0 : std::min<size_t>(step - window.first, count);
  };
  uint32_t step = 0;
  for (size_t i = 0; i < lifetimes.events.size(); ++i) {
    while (step < steps.ends.size() && steps.ends[step] <= i) ++step;
    const Event& event = lifetimes.events[i];
    const uint8_t row = row_of[event.stack];
    if (row == kNone || event.action() != Action::kAlloc) continue;
    held[row][bucket(step)] += static_cast<double>(event.size);
    if (lifetimes.partner[i] != Lifetimes::kNever)
      held[row][bucket(StepOf(steps, lifetimes.partner[i]))] -= static_cast<double>(event.size);
  }
  for (auto& levels : held) {
    for (size_t i = 1; i < count; ++i) levels[i] += levels[i - 1];
    levels.pop_back();
  }
  return held;
}

struct Trend {
  double slope = 0;
  std::pair<double, double> interval{0, 0};
  double confidence = 0;  // that it rises, Mann-Kendall
  double late_slope = 0;  // over the last third
};

double Median(std::vector<double>& values) {
  if (values.empty()) return 0;
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Trend Fit(const std::vector<double>& all) {
  std::vector<double> y = all;
  double stride = 1;
  if (y.size() > kMostPoints) {
    stride = static_cast<double>(y.size()) / kMostPoints;
    y.clear();
    for (size_t i = 0; i < kMostPoints; ++i)
      y.push_back(all[static_cast<size_t>(static_cast<double>(i) * stride)]);
  }
  Trend trend;
  std::vector<double> slopes, late;
  double s = 0;
  const size_t n = y.size(), third = n - n / 3;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) {
      const double slope = (y[j] - y[i]) / (static_cast<double>(j - i) * stride);
      slopes.push_back(slope);
      if (i >= third) late.push_back(slope);
      s += y[j] > y[i] ? 1 : y[j] < y[i] ? -1 : 0;
    }
  }
  const double points = static_cast<double>(n);
  const double deviation = std::sqrt(points * (points - 1) * (2 * points + 5) / 18);
  trend.confidence = deviation > 0 && s > 0 ? std::erf((s - 1) / deviation / std::sqrt(2.0)) : 0;
  std::sort(slopes.begin(), slopes.end());
  if (!slopes.empty()) {
    trend.slope = slopes[slopes.size() / 2];
    trend.interval = {slopes[slopes.size() / 4], slopes[slopes.size() * 3 / 4]};
  }
  trend.late_slope = Median(late);
  return trend;
}

// Rising to the end is a leak, rising and then flat is bounded growth, the rest is nothing.
const char* Name(const Trend& trend, const std::vector<double>& held) {
  const double rise = held.back() - held.front();
  if (rise <= 0 || trend.confidence < 0.9) return "";
  const double mean_slope = rise / static_cast<double>(held.size() - 1);
  if (held.size() >= 9 && trend.late_slope < 0.1 * mean_slope &&
      held.back() - held[held.size() - held.size() / 3] < 0.05 * rise) {
    return "bounded";
  }
  return trend.slope > 0 || trend.late_slope > 0 || mean_slope > 0 ? "leak" : "";
}

void JudgeStacks(const Snapshot& snapshot, const Lifetimes& lifetimes, CallSites& sites, const Window& window,
                 Growth& growth) {
  auto survivors = FindSurvivors(lifetimes, growth.steps, window);
  std::vector<std::pair<StackId, Survivors>> candidates;
  const uint64_t least = std::max<uint64_t>(3, growth.steps_judged / 10);
  for (const auto& [stack, mine] : survivors) {
    if (mine.steps >= std::min<uint64_t>(least, 4)) candidates.emplace_back(stack, mine);
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.bytes, a.first) > std::pair(b.second.bytes, b.first);
  });
  if (candidates.size() > kMostStacks) candidates.resize(kMostStacks);
  std::vector<StackId> stacks;
  for (const auto& [stack, mine] : candidates) stacks.push_back(stack);
  const auto all_held = HeldAtEnds(lifetimes, growth.steps, window, stacks, snapshot.names.stack_count());
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto& [stack, mine] = candidates[i];
    const std::vector<double>& held = all_held[i];
    const Trend trend = Fit(held);
    const std::string verdict = Name(trend, held);
    if (verdict.empty()) continue;
    const CallSite& site = sites.Of(stack);
    StackGrowth row;
    row.stack = stack;
    row.label = stack ? site.label : "unattributed: no stack recorded";
    row.file = site.file;
    row.line = site.line;
    row.function = site.function;
    row.bytes = mine.bytes;
    row.blocks = mine.blocks;
    row.steps_with_births = mine.steps;
    row.bytes_per_step = (held.back() - held.front()) / static_cast<double>(held.size() - 1);
    row.interval = {std::min(trend.interval.first, row.bytes_per_step),
                    std::max(trend.interval.second, row.bytes_per_step)};
    row.verdict = verdict;
    growth.confidence = std::max(growth.confidence, trend.confidence);
    growth.stacks.push_back(row);
  }
  std::stable_sort(growth.stacks.begin(), growth.stacks.end(),
                   [](const StackGrowth& a, const StackGrowth& b) {
                     if (a.verdict != b.verdict) return a.verdict == "leak";
                     return a.bytes_per_step > b.bytes_per_step;
                   });
}

}  // namespace

Growth JudgeGrowth(const Snapshot& snapshot, const Lifetimes& lifetimes, CallSites& sites) {
  Growth growth;
  growth.steps = FindSteps(snapshot, lifetimes, sites);
  const size_t ends = growth.steps.ends.size();
  growth.steps_judged = ends > 2 ? ends - 2 : 0;  // the first step sets up, and levels need two ends
  if (growth.steps_judged < kLeastJudged) {
    growth.verdict = "insufficient";
    growth.steps_needed = kLeastJudged + 2;
    growth.reason =
        ends == 0 ? std::string("no steps can be told apart in the trace")
                  : fmt::format("{} step ends are in the trace; {} are needed to tell a trend from warm-up",
                                ends, kLeastJudged + 2);
    return growth;
  }
  const Window window{1, ends - 1};
  JudgeStacks(snapshot, lifetimes, sites, window, growth);
  for (const StackGrowth& row : growth.stacks) {
    if (row.verdict != "leak") continue;
    growth.bytes_per_step += row.bytes_per_step;
    growth.interval.first += row.interval.first;
    growth.interval.second += row.interval.second;
  }
  const bool leak = growth.bytes_per_step > 0;
  growth.verdict = leak ? "leak" : growth.stacks.empty() ? "healthy" : "bounded";
  if (leak) {
    growth.onset_step = 1;
    growth.reason =
        fmt::format("memory born in step after step is never freed: {} over {} steps, told apart by {}",
                    FormatRate(growth.bytes_per_step), growth.steps_judged, growth.steps.how);
  } else if (growth.verdict == "bounded") {
    growth.reason =
        fmt::format("memory grew over the first of {} steps and then stopped", growth.steps_judged);
  } else {
    growth.confidence = 0.9;
    growth.reason = fmt::format("no stack holds more from step to step over {} steps, told apart by {}",
                                growth.steps_judged, growth.steps.how);
  }
  return growth;
}

}  // namespace lowtide::snapshot
