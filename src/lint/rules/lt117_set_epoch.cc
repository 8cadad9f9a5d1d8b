#include "lint/rules.h"

// LT117: a shuffling DistributedSampler whose set_epoch nobody calls: the same order in every epoch.
namespace lowtide::lint {
namespace {

bool EvaluationName(std::string_view text) { return HasHint(text, {"val", "test", "eval", "dev_", "_dev", "infer", "predict"}) && !HasHint(text, {"train"}); }

// `shuffle` is a parameter of the function around with the default False.
bool OffByDefault(const Module& m, NodeId shuffle) {
  int function = m.FunctionOf(shuffle);
  NodeId list = function > 0 ? m.Child(m.functions()[function].node, Field::k_parameters) : 0;
  if (!list || m.KindOf(shuffle) != Kind::kIdentifier) return false;
  for (NodeId parameter : m.Children(list)) {
    NodeId name = m.Child(parameter, Field::k_name), value = m.Child(parameter, Field::k_value);
    if (name && value && m.LastName(name) == m[shuffle].atom) return m.KindOf(value) == Kind::kFalse;
  }
  return false;
}

}  // namespace

void CheckSetEpoch(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (m.Has(kA_set_epoch)) return;
  for (NodeId call : m.Calls(kA_DistributedSampler)) {
    // A sampler of the project's own by the same name.
    auto from = m.imports().find(m.RootName(m.Callee(call)));
    if (from != m.imports().end() && from->second.compare(0, 5, "torch") != 0) continue;
    NodeId shuffle = m.Argument(call, 3, kA_shuffle);
    if (shuffle && m.KindOf(shuffle) == Kind::kFalse) continue;
    if (shuffle && OffByDefault(m, shuffle)) continue;
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
    for (Atom parameter : m.functions()[function].parameters) {  // build_loader(args, train=True)
      const std::string_view flag = m.Name(parameter);
      trains |= flag == "train" || flag == "is_train" || flag == "training" || flag == "is_training";
    }
    if (!trains) continue;
    if (NodeId keyword = m.Ancestor(call, {Kind::kCall}); keyword && m.Contains(keyword, {kA_Trainer, kA_trainer})) continue;
    bool lightning = false;
    for (const auto& [bound, target] : m.imports()) lightning |= target.find("lightning") != std::string::npos || target.starts_with("monai.engines");
    if (int cls = m.ClassOf(call); cls >= 0) {  // a method that a Trainer calls, which sets the epoch
      for (Atom base : m.classes()[cls].bases) lightning |= m.Name(base).ends_with("Trainer");
    }
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
