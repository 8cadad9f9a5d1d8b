#include <cmath>

#include "base/json.h"
#include "finding/version.h"
#include "plan/setup.h"
#include "report/plan_names.h"
#include "report/plan_report.h"

namespace lowtide::report {
namespace {

using namespace plan;

constexpr Moment kAll[] = {kLoss, kBackward, kBackwardEnd, kStep, kSteady};
constexpr const char* kKeys[] = {"loss", "backward", "backward_end", "step", "between_steps"};

int64_t Whole(double bytes) { return std::isfinite(bytes) ? std::llround(std::min(bytes, 9e18)) : 0; }

// The figure of a moment is the sum of the rounded terms, so that a reader's sum comes out to the byte.
int64_t At(const StageMemory& stage, Moment moment) {
  int64_t sum = 0;
  for (const Term& term : stage.terms) sum += Whole(term.bytes[moment]);
  return sum;
}

const char* FitWord(Fit fit) { return fit == Fit::kFits ? "fits" : fit == Fit::kTooClose ? "too_close" : "does_not_fit"; }

void WriteModel(JsonWriter& json, const Plan& plan) {
  const Shape& shape = plan.request.shape;
  json.Key("model").BeginObject().Field("name", shape.name).Field("family", shape.family);
  json.Field("parameters", Whole(plan.count.total)).Field("active_parameters", Whole(plan.count.active));
  json.Field("trainable_parameters", shape.trainable ? std::optional<uint64_t>(shape.trainable) : std::nullopt);
  json.Field("layers", shape.layers).Field("encoder_layers", shape.encoder_layers).Field("hidden", shape.hidden).Field("heads", shape.heads);
  json.Field("kv_heads", shape.kv_heads).Field("head_dim", shape.head_dim).Field("ffn", shape.ffn).Field("vocab", shape.vocab);
  json.Field("experts", shape.experts.count).Field("experts_per_token", shape.experts.per_token).Field("tied", shape.tied);
  json.Field("sizes_known", shape.sizes_known).Key("assumed").BeginArray();
  for (const Text& text : shape.assumed) json.Value(text.en);
  json.EndArray().EndObject();
}

void WriteSetup(JsonWriter& json, const Setup& setup) {
  json.Key("setup").BeginObject().Field("description", Describe(setup)).Field("strategy", StrategyWord(setup.strategy)).Field("gpus", setup.gpus);
  json.Field("tp", setup.tensor).Field("pp", setup.pipeline).Field("cp", setup.context).Field("ep", setup.expert).Field("dp", setup.data());
  json.Field("shards", setup.shards()).Field("sequence_parallel", setup.sequence_parallel).Field("offload_optimizer", setup.offload_optimizer);
  json.Field("offload_parameters", setup.offload_parameters).Field("precision", PrecisionWord(setup)).Field("optimizer", OptimizerWord(setup.optimizer));
  json.Field("checkpoint", RecomputeWord(setup.recompute)).Field("code", CodeWord(setup.code)).Field("logits", LogitsWord(setup.logits_kind()));
  json.Field("attention", setup.flash ? "flash" : "eager").Field("micro_batch", setup.micro_batch).Field("seq_len", setup.sequence);
  json.Field("accumulate", setup.accumulate).Field("lora_rank", setup.lora_rank).EndObject();
}

void WriteMoments(JsonWriter& json, const char* key, const auto& figure) {
  json.Key(key).BeginObject();
  for (Moment moment : kAll) json.Field(kKeys[moment], figure(moment));
  json.EndObject();
}

void WriteTerms(JsonWriter& json, const StageMemory& stage) {
  const Moment peak = stage.PeakMoment();
  json.Key("terms").BeginArray();
  for (const Term& term : stage.terms) {
    json.BeginObject().Field("id", term.id).Field("name", term.name.en).Field("bytes", Whole(term.bytes[peak]));
    WriteMoments(json, "at", [&](Moment moment) { return Whole(term.bytes[moment]); });
    json.Field("formula", term.formula.en).Field("source", term.source).EndObject();
  }
  json.EndArray();
}

void WriteEstimate(JsonWriter& json, const Candidate& candidate, double capacity) {
  const Estimate& estimate = candidate.estimate;
  const StageMemory& worst = estimate.Worst();
  const int64_t peak = At(worst, worst.PeakMoment());
  const Unusable unusable = UnusableMemory(estimate);
  json.Key("estimate").BeginObject().Field("peak_bytes", peak).Field("steady_bytes", Whole(estimate.Steady()));
  json.Field("band", estimate.band).Field("low_bytes", Whole(estimate.Peak() * (1 - estimate.band))).Field("high_bytes", Whole(estimate.Peak() * (1 + estimate.band)));
  json.Field("peak_moment", kKeys[worst.PeakMoment()]);
  WriteMoments(json, "moments", [&](Moment moment) { return At(worst, moment); });
  WriteTerms(json, worst);
  json.Key("stages").BeginArray();
  for (const StageMemory& stage : estimate.stages) {
    json.BeginObject().Field("stage", stage.stage).Field("peak_bytes", At(stage, stage.PeakMoment())).Field("steady_bytes", At(stage, kSteady));
    json.Field("parameters", Whole(stage.parameters)).Field("layers", stage.layers).EndObject();
  }
  json.EndArray().Key("unusable").BeginObject().Field("context_bytes", Whole(unusable.context));
  json.Field("communication_bytes", Whole(unusable.communication)).Field("fragmentation_bytes", Whole(unusable.fragmentation)).EndObject();
  json.Field("fit", capacity > 0 ? std::optional<std::string>(FitWord(candidate.fit)) : std::nullopt);
  json.Field("largest_micro_batch", capacity > 0 ? std::optional<uint64_t>(candidate.largest_micro_batch) : std::nullopt).EndObject();
}

void WriteCandidate(JsonWriter& json, const Candidate& candidate) {
  const Cost& cost = candidate.cost;
  json.Field("kind", candidate.kind).Field("fit", FitWord(candidate.fit)).Field("peak_bytes", Whole(candidate.estimate.Peak()));
  json.Field("needed_bytes", Whole(candidate.estimate.Peak() + UnusableMemory(candidate.estimate).total())).Field("band", candidate.estimate.band);
  json.Field("largest_micro_batch", candidate.largest_micro_batch).Field("why", candidate.why.en);
  WriteSetup(json, candidate.estimate.setup);
  json.Key("cost").BeginObject().Field("network_bytes", Whole(cost.network_bytes)).Field("host_bytes", Whole(cost.host_bytes));
  json.Field("host_memory_bytes", Whole(cost.host_memory)).Field("recompute_share", cost.recompute).Field("bubble_share", cost.bubble);
  json.Field("nominal_seconds_per_step", cost.seconds).EndObject();
}

void WriteMeasured(JsonWriter& json, const Plan& plan) {
  json.Key("measured");
  if (!plan.measured) {
    json.Null();
    return;
  }
  const Measured& m = *plan.measured;
  auto whole = [](const std::optional<double>& value) { return value ? std::optional<int64_t>(Whole(*value)) : std::nullopt; };
  json.BeginObject().Field("steps", m.steps).Field("pool", m.pool).Field("peak_bytes", Whole(m.peak)).Field("steady_bytes", Whole(m.steady));
  json.Field("parameters", whole(m.parameters)).Field("trainable_parameters", whole(m.trainable)).Field("weight_bytes", whole(m.weights));
  json.Field("gradient_bytes", whole(m.gradients)).Field("optimizer_bytes", whole(m.optimizer)).Field("micro_batch", m.micro_batch).Field("seq_len", m.sequence);
  json.Field("dynamic_bytes", Whole(m.dynamic));
  json.Field("predicted_peak_bytes", m.ratio ? std::optional(Whole(m.predicted_peak)) : std::nullopt);
  json.Field("predicted_dynamic_bytes", m.ratio ? std::optional(Whole(m.predicted_dynamic)) : std::nullopt).Field("activation_ratio", m.ratio);
  json.Key("notes").BeginArray();
  for (const Text& note : m.notes) json.Value(note.en);
  json.EndArray().EndObject();
}

}  // namespace

std::string PlanToJson(const Plan& plan) {
  JsonWriter json(1);
  json.BeginObject().Field("lowtide", kVersion).Field("schema", 1);
  WriteModel(json, plan);
  const double capacity = plan.request.capacity;
  json.Field("gpu", plan.request.gpu.name).Field("capacity_bytes", capacity > 0 ? std::optional(Whole(capacity)) : std::nullopt);
  WriteSetup(json, plan.shown.estimate.setup);
  WriteEstimate(json, plan.shown, capacity);
  json.Key("strategies").BeginArray();
  for (const Candidate& candidate : plan.candidates) {
    json.BeginObject();
    WriteCandidate(json, candidate);
    json.EndObject();
  }
  json.EndArray().Key("popular");
  if (plan.popular) {
    json.BeginObject().Field("name", plan.popular->name).Field("reason", plan.popular->reason.en);
    WriteCandidate(json, plan.popular->candidate);
    json.EndObject();
  } else {
    json.Null();
  }
  WriteMeasured(json, plan);
  json.Key("notes").BeginArray();
  for (const Text& note : plan.notes) json.Value(note.en);
  json.EndArray().EndObject();
  return json.Take() + "\n";
}

}  // namespace lowtide::report
