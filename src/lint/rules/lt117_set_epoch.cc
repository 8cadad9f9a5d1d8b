#include "lint/rules.h"

// LT117: a shuffling DistributedSampler whose set_epoch nobody calls: the same order in every epoch.
namespace lowtide::lint {
namespace {

bool EvaluationName(std::string_view text) { return HasHint(text, {"val", "test", "eval", "dev_", "_dev", "infer", "predict"}) && !HasHint(text, {"train"}); }

}  // namespace

void CheckSetEpoch(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (m.Has(kA_set_epoch)) return;
  for (NodeId call : m.Calls(kA_DistributedSampler)) {
    NodeId shuffle = m.Argument(call, 3, kA_shuffle);
    if (shuffle && m.KindOf(shuffle) == Kind::kFalse) continue;
    NodeId assignment = m.Ancestor(call, {Kind::kAssignment});
    if (assignment && EvaluationName(m.Text(m.Child(assignment, Field::k_left)))) continue;
    NodeId dataset = m.Argument(call, 0, kA_dataset);
    if (!dataset || EvaluationName(m.Text(dataset))) continue;
    int function = m.FunctionOf(call);
    std::string_view name = m.Name(m.functions()[function].name);
    NodeId around = m.EnclosingLoop(call);  // for sample in config["test_dataset"]
    if (around && m.KindOf(around) == Kind::kFor && EvaluationName(m.Text(m.Child(around, Field::k_right)))) continue;
    if (EvaluationName(name) || IsTestFile(m.path())) continue;
    bool trains = m.Has(kA_epoch) || m.Has(kA_epochs) || m.Has(kA_backward) || m.Has(kA_num_epochs) || HasHint(name, {"train"}) || (HasHint(m.Text(dataset), {"train"}) && !m.Contains(0, {kA_no_grad, kA_inference_mode}));
    if (!trains) continue;
    if (NodeId keyword = m.Ancestor(call, {Kind::kCall}); keyword && m.Contains(keyword, {kA_Trainer, kA_trainer})) continue;
    bool lightning = false;
    for (const auto& [bound, target] : m.imports()) lightning |= target.find("lightning") != std::string::npos;
    if (lightning) continue;
    report.Add(call, Severity::kError,
               {"this DistributedSampler shuffles by epoch, and set_epoch() is never called: every epoch sees the data in the same order",
               "这个 DistributedSampler 按轮次打乱，而 set_epoch() 从未调用：每一轮的数据顺序都相同"},
               {"call sampler.set_epoch(epoch) at the start of each epoch",
               "在每一轮开始时调用 sampler.set_epoch(epoch)"})
        .Needs({Ask::kNoProjectCall, false, 255, 0, HashName("set_epoch"), 0});
  }
}

}  // namespace lowtide::lint
