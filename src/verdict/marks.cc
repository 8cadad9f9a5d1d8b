#include "verdict/marks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "series/trend.h"

namespace lowtide::verdict {

using series::Phase;

void Marks::AddMark(Phase phase) {
  if (phase == Phase::kStep) return;
  kinds_[static_cast<size_t>(phase)].pending = true;
}

void Marks::AddPoint(double step, double value) {
  for (auto& kind : kinds_) {
    if (!kind.pending) continue;
    kind.pending = false;
    if (points_ == 0) continue;
    kind.events[kind.count++ % kKept] = {step, last_value_, value - last_value_};
  }
  last_value_ = value, last_step_ = step;
  ++points_;
}

std::optional<Phase> Marks::Blame(double bytes_per_step) const {
  std::optional<Phase> answer;
  double best = 0;
  for (Phase phase : {Phase::kValidation, Phase::kCheckpoint, Phase::kEpoch, Phase::kOther}) {
    auto& kind = kinds_[static_cast<size_t>(phase)];
    if (kind.count < 6) continue;
    size_t kept = std::min<uint64_t>(kind.count, kKept);
    std::vector<Event> events;
    for (uint64_t i = kind.count - kept; i < kind.count; ++i)
      if (i > 0) events.push_back(kind.events[i % kKept]);
    double jumps = 0, spread = 0, steps = events.back().step - events.front().step;
    for (auto& e : events) jumps += e.jump;
    double mean = jumps / static_cast<double>(events.size());
    for (auto& e : events) spread += (e.jump - mean) * (e.jump - mean);
    double m = static_cast<double>(events.size()), error = std::sqrt(spread / (m - 1) / m);
    if (steps <= 0) continue;
    // Every event must keep something, and what it keeps must explain the growth between the first and the
    // last.
    double share = (jumps - events.front().jump) / (bytes_per_step * steps);
    if (mean < 3 * error) {
      if (std::abs(share) + 3 * error * m / (bytes_per_step * steps) < 0.3)
        answer = answer.value_or(Phase::kStep);
      continue;
    }
    if (share >= 0.55 && share <= 1.8 && share > best)
      best = share, answer = phase;
    else if (share < 0.4 && !answer)
      answer = Phase::kStep;
  }
  return answer;
}

}  // namespace lowtide::verdict
