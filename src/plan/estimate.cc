#include "plan/estimate.h"

#include <algorithm>

#include "plan/terms.h"

namespace lowtide::plan {
namespace {

constexpr double kEagerBand = 0.35, kBand = 0.20;

StageMemory PredictStage(const Shape& shape, const Setup& setup, const ParameterCount& count, uint64_t index) {
  const Stage stage = MakeStage(shape, count, setup, index);
  const Context context = MakeContext(shape, setup, count, stage);
  StageMemory memory{index, stage.all() + stage.lora, stage.layers, {}};
  if (setup.deepspeed_counting) {
    AddDeepSpeedStates(context, memory.terms);
  } else {
    AddStates(context, memory.terms);
  }
  if (!setup.states_only) {
    AddBuffers(context, memory.terms);
    AddActivations(context, memory.terms);
  }
  return memory;
}

}  // namespace

double StageMemory::At(Moment moment) const {
  double sum = 0;
  for (const Term& term : terms) sum += term.bytes[moment];
  return sum;
}

Moment StageMemory::PeakMoment() const {
  Moment best = kLoss;
  for (Moment moment : {kBackward, kBackwardEnd, kStep}) {
    if (At(moment) > At(best)) best = moment;
  }
  return best;
}

double StageMemory::Part(const std::string& id) const {
  const Moment moment = PeakMoment();
  double sum = 0;
  for (const Term& term : terms) sum += term.id == id ? term.bytes[moment] : 0;
  return sum;
}

double Estimate::Steady() const {
  double most = 0;
  for (const StageMemory& stage : stages) most = std::max(most, stage.At(kSteady));
  return most;
}

Estimate Predict(const Shape& shape, const Setup& setup) {
  CheckShape(shape);
  CheckSetup(setup, shape);
  const ParameterCount count = CountParameters(shape);
  Estimate estimate;
  estimate.setup = setup;
  estimate.band = setup.code == Code::kEager ? kEagerBand : kBand;
  estimate.stages.push_back(PredictStage(shape, setup, count, 0));
  if (setup.pipeline > 1) estimate.stages.push_back(PredictStage(shape, setup, count, setup.pipeline - 1));
  for (size_t i = 1; i < estimate.stages.size(); ++i) {
    if (estimate.stages[i].Peak() > estimate.Peak()) estimate.worst = i;
  }
  return estimate;
}

Unusable UnusableMemory(const Estimate& estimate) {
  constexpr double kGroupBytes = 0.25e9;  // NCCL's channels, per communicator
  const Setup& setup = estimate.setup;
  Unusable unusable;
  unusable.context = 0.6e9;
  const uint64_t groups = (setup.data() > 1) + (setup.tensor > 1) + (setup.pipeline > 1) + (setup.context > 1) + (setup.expert > 1);
  unusable.communication = kGroupBytes * static_cast<double>(groups);
  unusable.fragmentation = 0.05 * std::max(0.0, estimate.Peak() - estimate.Worst().At(kSteady));
  return unusable;
}

Fit Judge(const Estimate& estimate, double capacity) {
  const double room = capacity - UnusableMemory(estimate).total(), peak = estimate.Peak();
  if (peak * (1 + estimate.band) <= room) return Fit::kFits;
  return peak * (1 - estimate.band) > room ? Fit::kTooLarge : Fit::kTooClose;
}

}  // namespace lowtide::plan
