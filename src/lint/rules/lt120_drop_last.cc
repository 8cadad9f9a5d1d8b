#include "lint/rules.h"

// LT120 (off): a distributed training loader whose last batch may be short.
namespace lowtide::lint {

void CheckDropLast(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (!m.Has(kA_DistributedSampler) && !m.Has(kA_DistributedDataParallel) && !m.Has(kA_DDP)) return;
  for (NodeId call : m.Calls(kA_DataLoader)) {
    NodeId drop = m.Argument(call, 8, kA_drop_last);
    if (drop && m.KindOf(drop) != Kind::kFalse) continue;
    if (NodeId batch = m.Keyword(call, kA_batch_sampler); batch && m.KindOf(batch) != Kind::kNone) continue;
    NodeId assignment = m.Ancestor(call, {Kind::kAssignment});
    std::string_view name = assignment ? m.Text(m.Child(assignment, Field::k_left)) : m.Name(m.functions()[m.FunctionOf(call)].name);
    if (HasHint(name, {"val", "test", "eval", "dev", "infer"}) && !HasHint(name, {"train"})) continue;
    bool splat = false;
    for (NodeId argument : m.Children(m.Child(call, Field::k_arguments))) splat |= m.KindOf(argument) == Kind::kDictSplat;
    NodeId dataset = m.Argument(call, 0, kA_dataset);
    if (splat || !dataset || (HasHint(m.Text(dataset), {"val", "test", "eval"}) && !HasHint(m.Text(dataset), {"train"}))) continue;
    report.Add(call, Severity::kNote, {"without drop_last the last batch may be short: BatchNorm sees few samples, and ranks may differ in steps",
               "没有 drop_last 时最后一个批次可能不满：批归一化的样本太少，各进程的步数也可能不同"}, {"pass drop_last=True for training",
               "训练时传入 drop_last=True"});
  }
}

}  // namespace lowtide::lint
