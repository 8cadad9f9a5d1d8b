#include "cli/iterations.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>

namespace lowtide::cli {
namespace {

// What is skipped now and then changes no figure that is shown; so few iterations to a step are taken for one.
constexpr double kLeast = 1.05;
constexpr double kMost = 1e6;

void Divide(std::optional<double>& rate, double factor) {
  if (rate) *rate /= factor;
}

// "4", "1.5"
std::string Number(double value) { return std::abs(value - std::round(value)) < 0.05 ? fmt::format("{:.0f}", value) : fmt::format("{:.1f}", value); }

void Explain(const Iterations& iterations, verdict::Judgement& judgement) {
  const std::string often = Number(iterations.per_step);
  judgement.note += fmt::format("{}A step is one iteration of the loop at {}; the optimizer steps once in {} of them.",
                                judgement.note.empty() ? "" : " ", iterations.place, often);
  judgement.note_zh += fmt::format("一步指 {} 处循环的一次迭代；优化器每 {} 次迭代更新一次。", iterations.place, often);
}

}  // namespace

uint64_t Iterations::Of(uint64_t step) const { return static_cast<uint64_t>(std::llround(static_cast<double>(step) * per_step)); }

Iterations IterationsOf(const record::Ring& ring) {
  const record::FileHeader& header = ring.header();
  const record::LoopFigures& loop = header.loop;
  Iterations out;
  if (header.step_source != record::StepSource::kOptimizer || loop.steps == 0) return out;
  const double ratio = static_cast<double>(loop.iterations) / static_cast<double>(loop.steps);
  if (!(ratio >= kLeast && ratio <= kMost)) return out;
  out.per_step = ratio;
  out.place.assign(loop.place, ::strnlen(loop.place, sizeof loop.place));
  return out;
}

void CountInIterations(const Iterations& iterations, verdict::Judgement& judgement) {
  if (!iterations.differ()) return;
  const double factor = iterations.per_step;
  Divide(judgement.bytes_per_step, factor);
  Divide(judgement.no_leak_above, factor);
  if (judgement.interval) judgement.interval->first /= factor, judgement.interval->second /= factor;
  if (judgement.gap) judgement.gap->growth_per_step /= factor;
  for (auto* step : {&judgement.onset_step, &judgement.steps_to_oom, &judgement.steps_needed, &judgement.step_change_at}) {
    if (*step) **step = std::round(**step * factor);
  }
  judgement.first_step = std::round(judgement.first_step * factor);
  judgement.last_step = std::round(judgement.last_step * factor);
  judgement.steps_seen = iterations.Of(judgement.steps_seen);
  if (judgement.bytes_per_step && judgement.kind != verdict::Kind::kHealthy) Explain(iterations, judgement);
}

void CountInIterations(const Iterations& iterations, report::RankView& rank) {
  if (!iterations.differ()) return;
  rank.steps = iterations.Of(rank.steps);
  for (report::PhaseSpan& span : rank.phases) span.first_step = iterations.Of(span.first_step), span.last_step = iterations.Of(span.last_step);
}

void CountInIterations(const Iterations& iterations, report::SeriesView& series) {
  if (!iterations.differ()) return;
  for (report::SeriesView::Point& point : series.points) point.step = iterations.Of(point.step);
}

void CountInIterations(const Iterations& iterations, finding::HolderRow& holder) {
  holder.bytes_per_step = std::round(holder.bytes_per_step / iterations.per_step);
}

}  // namespace lowtide::cli
