#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "report/columns.h"
#include "report/phrases.h"
#include "report/plan_names.h"
#include "report/plan_report.h"

namespace lowtide::report {
namespace {

using namespace plan;

std::string ShortCount(double count) {
  if (count >= 1e12) return fmt::format("{:.2f}T", count / 1e12);
  if (count >= 1e9) return fmt::format("{:.2f}B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f}M", count / 1e6);
  return count >= 1e4 ? fmt::format("{:.1f}K", count / 1e3) : fmt::format("{:.0f}", count);
}

class Writer {
 public:
  Writer(const Plan& plan, const Terminal& terminal, std::string_view lang) : plan_(plan), terminal_(terminal), words_(lang) {}

  std::string Write() {
    Head();
    if (plan_.measured) MeasuredTable();
    Terms();
    if (!plan_.candidates.empty()) Strategies();
    if (plan_.popular) PopularAnswer();
    Next();
    return std::move(out_);
  }

 private:
  const std::string& Pick(const Text& text) const { return words_.Pick(text.en, text.zh); }
  void Line(const std::string& text = {}) { out_ += text + "\n"; }
  int Width() const { return std::max(terminal_.width, 80); }

  // A first line and, below it, what did not fit, at the same indent.
  void Wrapped(const std::string& indent, const std::string& text) {
    for (const std::string& line : WrapTo(text, Width() - static_cast<int>(indent.size()))) Line(indent + line);
  }

  const char* RecomputeName(Recompute recompute) const {
    switch (recompute) {
      case Recompute::kNone: return words_.Get(Phrase::kPlanNone);
      case Recompute::kSelective: return words_.Get(Phrase::kPlanSelective);
      case Recompute::kFull: return words_.Get(Phrase::kPlanFull);
      case Recompute::kOffload: break;
    }
    return words_.Get(Phrase::kPlanOffload);
  }

  const char* MomentWord(Moment moment) const {
    constexpr Phrase kNames[] = {Phrase::kPlanAtLoss, Phrase::kPlanAtBackward, Phrase::kPlanAtBackwardEnd, Phrase::kPlanAtStep};
    return words_.Get(kNames[std::min<int>(moment, kStep)]);
  }

  const char* FitName(Fit fit) const {
    return words_.Get(fit == Fit::kFits ? Phrase::kPlanFits : fit == Fit::kTooClose ? Phrase::kPlanClose : Phrase::kPlanLarge);
  }

  std::string Coloured(Fit fit, const std::string& text) const {
    return fit == Fit::kFits ? terminal_.Green(text) : fit == Fit::kTooClose ? terminal_.Yellow(text) : terminal_.Red(text);
  }

  void Head() {
    const Shape& shape = plan_.request.shape;
    const Setup& setup = plan_.shown.estimate.setup;
    std::string sizes = words_.Say(Phrase::kPlanShape, shape.layers + shape.encoder_layers, shape.hidden, shape.heads, shape.kv_heads, shape.ffn, shape.vocab);
    if (shape.experts.count) sizes += words_.Say(Phrase::kPlanExperts, shape.experts.count, shape.experts.per_token, ShortCount(plan_.count.active));
    if (!shape.sizes_known) sizes = shape.family;
    if (shape.trainable && shape.trainable < shape.exact_parameters) sizes += words_.Say(Phrase::kPlanTrained, ShortCount(static_cast<double>(shape.trainable)));
    Line(terminal_.Bold(words_.Say(Phrase::kPlanModel, shape.name, ShortCount(plan_.count.total), sizes)));
    const double capacity = plan_.request.capacity;
    const std::string gpu = capacity > 0 ? words_.Say(Phrase::kPlanGpu, plan_.request.gpu.name, FormatBytes(capacity)) : words_.Get(Phrase::kPlanAnyGpu);
    Line(words_.Say(Phrase::kPlanJob, setup.gpus, gpu, setup.micro_batch, setup.sequence, PrecisionWord(setup), OptimizerWord(setup.optimizer)));
    for (const Text& note : plan_.notes) Wrapped("  ", Pick(note));
    Line();
  }

  void Row(const std::string& name, double bytes, double whole, const std::string& how) {
    const std::string share = whole > 0 ? fmt::format("{:.1f} %", 100 * bytes / whole) : "";
    std::vector<std::string> lines = WrapTo(how, std::max(Width() - 55, 20));
    if (lines.empty()) lines.emplace_back();
    Line("  " + FitLeft(name, 34) + FitRight(FormatBytes(bytes), 9) + FitRight(share, 8) + "  " + lines[0]);
    for (size_t i = 1; i < lines.size(); ++i) Line(std::string(55, ' ') + lines[i]);
  }

  void Terms() {
    const Candidate& shown = plan_.shown;
    const Estimate& estimate = shown.estimate;
    const StageMemory& worst = estimate.Worst();
    const Moment moment = worst.PeakMoment();
    const bool asked = plan_.request.strategy_given || plan_.request.capacity <= 0;
    const Phrase title = asked ? Phrase::kPlanAsked : shown.fit == Fit::kFits ? Phrase::kPlanBest : Phrase::kPlanLeast;
    Line(terminal_.Bold(words_.Say(Phrase::kPlanTitle, words_.Get(title), Describe(estimate.setup, words_.chinese()), RecomputeName(estimate.setup.recompute))));
    Line(terminal_.Dim("  " + words_.Say(Phrase::kPlanTerm, MomentWord(moment))));
    for (const Term& term : worst.terms) {
      if (term.bytes[moment] > 0) Row(Pick(term.name), term.bytes[moment], estimate.Peak(), Pick(term.formula));
    }
    const double band = estimate.band;
    Row(words_.Get(Phrase::kPlanTotal), estimate.Peak(), estimate.Peak(),
        words_.Say(Phrase::kPlanBand, FormatBytes(estimate.Peak() * (1 - band)), FormatBytes(estimate.Peak() * (1 + band)), 100 * band));
    Line("  " + words_.Say(Phrase::kPlanSteady, FormatBytes(estimate.Steady())));
    for (const StageMemory& stage : estimate.stages) {
      if (estimate.stages.size() > 1) Line("  " + words_.Say(Phrase::kPlanStage, stage.stage + 1, FormatBytes(stage.Peak())));
    }
    if (plan_.request.capacity > 0) Needed(shown);
    Line();
  }

  void Needed(const Candidate& shown) {
    const Unusable unusable = UnusableMemory(shown.estimate);
    Row(words_.Get(Phrase::kPlanContext), unusable.context, 0, words_.Get(Phrase::kPlanContextHow));
    if (unusable.communication > 0) Row(words_.Get(Phrase::kPlanNccl), unusable.communication, 0, words_.Get(Phrase::kPlanNcclHow));
    Row(words_.Get(Phrase::kPlanHoles), unusable.fragmentation, 0, words_.Get(Phrase::kPlanHolesHow));
    const std::string name = words_.Say(Phrase::kPlanNeeded, FormatBytes(plan_.request.capacity));
    Line("  " + FitLeft(name, 34) + FitRight(FormatBytes(shown.estimate.Peak() + unusable.total()), 9) + "          " + Coloured(shown.fit, FitName(shown.fit)));
  }

  void StrategyRow(const std::string& strategy, const std::string& recompute, const std::string& needs, const std::string& verdict, const std::string& batch,
                   const std::optional<Fit>& fit) {
    const std::string word = FitLeft(verdict, 19);
    Line("  " + FitLeft(strategy, 41) + FitLeft(recompute, 15) + FitRight(needs, 9) + "  " + (fit ? Coloured(*fit, word) : word) + FitRight(batch, 9));
  }

  void Strategies() {
    Line(terminal_.Bold(words_.Get(Phrase::kPlanRanked)));
    StrategyRow(words_.Get(Phrase::kPlanHead), words_.Get(Phrase::kPlanHeadRecompute), words_.Get(Phrase::kPlanHeadNeeds), words_.Get(Phrase::kPlanHeadVerdict),
                words_.Get(Phrase::kPlanHeadBatch), {});
    for (const Candidate& candidate : plan_.candidates) {
      const double needs = candidate.estimate.Peak() + UnusableMemory(candidate.estimate).total();
      const std::string batch = candidate.largest_micro_batch ? FormatCount(candidate.largest_micro_batch) : "-";
      StrategyRow(Describe(candidate.estimate.setup, words_.chinese()), RecomputeName(candidate.estimate.setup.recompute), FormatBytes(needs), FitName(candidate.fit), batch, candidate.fit);
      Wrapped("      ", Pick(candidate.why));
    }
    Line();
  }

  void PopularAnswer() {
    const Popular& popular = *plan_.popular;
    Wrapped("", words_.Say(Phrase::kPlanPopular, popular.name, FitName(popular.candidate.fit), Pick(popular.reason)));
    Line();
  }

  void Compare(Phrase name, std::optional<double> predicted, std::optional<double> measured) {
    if (!measured) return;
    const std::string ratio = predicted && *predicted > 0 ? fmt::format("{:.2f}", *measured / *predicted) : "-";
    Line("  " + FitLeft(words_.Get(name), 28) + FitRight(predicted ? FormatBytes(*predicted) : "-", 12) + FitRight(FormatBytes(*measured), 12) + FitRight(ratio, 8));
  }

  void MeasuredTable() {
    const Measured& m = *plan_.measured;
    Line(terminal_.Bold(words_.Say(Phrase::kPlanMeasuredHead, m.steps, words_.Pool(m.pool))));
    Line("  " + FitLeft("", 28) + FitRight(words_.Get(Phrase::kPlanPredicted), 12) + FitRight(words_.Get(Phrase::kPlanMeasured), 12) + FitRight(words_.Get(Phrase::kPlanRatio), 8));
    auto known = [&](double value) { return m.ratio ? std::optional(value) : std::nullopt; };
    Compare(Phrase::kPlanWeights, m.predicted_weights, m.weights);
    Compare(Phrase::kPlanGradients, m.predicted_gradients, m.gradients);
    Compare(Phrase::kPlanOptimizer, m.predicted_optimizer, m.optimizer);
    Compare(Phrase::kPlanDynamic, known(m.predicted_dynamic), m.dynamic);
    Compare(Phrase::kPlanPeak, known(m.predicted_peak), m.peak);
    if (m.ratio) Line("  " + words_.Say(Phrase::kPlanApplied, *m.ratio));
    for (const Text& note : m.notes) Wrapped("  ", Pick(note));
    Line();
  }

  void Next() {
    Line(terminal_.Bold(words_.Get(Phrase::kPlanNext)));
    const Setup& setup = plan_.shown.estimate.setup;
    const StageMemory& worst = plan_.shown.estimate.Worst();
    const bool fits = plan_.shown.fit == Fit::kFits;
    auto say = [&](const std::string& text) {
      const char* mark = "  - ";
      for (const std::string& line : WrapTo(text, Width() - 4)) Line(std::exchange(mark, "    ") + line);
    };
    if (plan_.request.capacity <= 0) say(words_.Get(Phrase::kPlanNextGpu));
    if (plan_.shown.largest_micro_batch > setup.micro_batch && fits) say(words_.Say(Phrase::kPlanNextBatch, FormatCount(plan_.shown.largest_micro_batch)));
    if (plan_.request.capacity > 0 && !plan_.chosen && !setup.states_only) say(words_.Get(Phrase::kPlanNextMore));
    if (worst.Part("logits") > 0.25 * worst.Peak() && setup.logits_kind() == Logits::kWhole) say(words_.Get(Phrase::kPlanNextLogits));
    if (setup.code == Code::kEager && worst.Part("activations") > 0.3 * worst.Peak()) say(words_.Get(Phrase::kPlanNextCode));
    if (!plan_.measured) say(words_.Get(Phrase::kPlanNextMeasure));
  }

  const Plan& plan_;
  const Terminal& terminal_;
  Words words_;
  std::string out_;
};

}  // namespace

std::string PlanToText(const Plan& plan, const Terminal& terminal, std::string_view lang) { return Writer(plan, terminal, lang).Write(); }

}  // namespace lowtide::report
