#include "lint/rules.h"

// LT111: empty_cache() in every step.
namespace lowtide::lint {
namespace {

// `del model` before it in the same block: a loop over models or settings, in each of which something is trained.
bool ModelDropped(const Module& m, const Flow& flow, NodeId call) {
  NodeId statement = m.Statement(call);
  for (NodeId before = m.First(m[statement].parent); before && before < statement; before = m.Next(before)) {
    if (m.KindOf(before) != Kind::kDelete) continue;
    for (NodeId id = before; id < m[before].last; ++id) {
      if (m.KindOf(id) != Kind::kIdentifier) continue;
      if (flow.Of(id).flags & (kModel | kOptimizer)) return true;
      for (NodeId use : m.Calls({kA_parameters, kA_zero_grad})) {
        if (m.Path(m.Receiver(use)) == m[id].atom) return true;
      }
    }
  }
  return false;
}

}  // namespace

void CheckEmptyCache(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  const Flow& flow = scope.flow;
  for (NodeId call : m.Calls(kA_empty_cache)) {
    if (InExcept(m, call) || m.Ancestor(call, {Kind::kFinally}) || IsTestFile(m.path())) continue;
    int function = m.FunctionOf(call);
    if (HasHint(m.Name(m.functions()[function].name), {"profile", "bench", "autobatch", "measure"})) continue;
    NodeId loop = m.EnclosingLoop(call), training = 0;
    for (NodeId up = loop; up && !training; up = m.EnclosingLoop(up)) {
      if (IsEpochLoop(m, up)) break;
      if (IsTrainingLoop(m, flow, up)) training = up;
    }
    bool step = !loop && IsStepFunction(m, flow, function) && m.functions()[function].name == kA_training_step;
    if (!training && !step) continue;
    if (Periodic(m, call, training) || ModelDropped(m, flow, call)) continue;
    Pending& pending = report.Add(call, Severity::kWarning,
               {"empty_cache() in every step frees nothing that is referenced: it waits for the GPU and makes the next allocations slow",
               "每一步调用 empty_cache() 释放不了仍被引用的内存：它要等待 GPU，并使随后的分配变慢"},
               {"drop it, or call it once at a change of phase (before validation or a checkpoint)",
               "去掉它，或只在阶段切换时（验证或保存检查点之前）调用一次"});
    NodeId statement = m[call].parent;
    if (m.KindOf(statement) == Kind::kExpressionStatement && m.Next(statement) + 0 != 0) {
      pending.diagnostic.fix = Fix{true, "drop empty_cache()", {{m[statement].start, m[m.Next(statement)].start, ""}}, "去掉 empty_cache()"};
    }
  }
}

}  // namespace lowtide::lint
