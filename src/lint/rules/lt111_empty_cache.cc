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

// Backward stands in the loop's own body, not only in loops or functions with loops within: one iteration is one step.
bool StepsItself(const Module& m, const Flow& flow, NodeId loop, int depth = 0) {
  for (NodeId call : m.Nodes(Kind::kCall)) {
    if (!m.Inside(call, m.Child(loop, Field::k_body))) continue;
    bool own = m.EnclosingLoop(call) == loop;
    Atom name = m.CalleeName(call);
    if (own && (name == kA_backward || name == kA_manual_backward || (name == kA_step && IsOptimizerStep(m, call)))) return true;
    int callee = own && depth == 0 ? flow.ResolveCall(call) : -1;
    if (callee <= 0) continue;
    for (NodeId inner : m.Calls({kA_backward, kA_manual_backward})) {
      if (m.Inside(inner, m.functions()[callee].body) && m.EnclosingLoop(inner) == 0) return true;
    }
  }
  return false;
}

// The loop reads how much memory is in use: it measures, and wants each step on its own.
bool Measures(const Module& m, NodeId loop) {
  for (NodeId call : m.Calls({kA_memory_allocated, kA_memory_reserved, kA_max_memory_allocated})) {
    if (m.Inside(call, loop) && !m.Ancestor(call, {Kind::kIf})) return true;
  }
  return false;
}

// One backward and one step of an optimizer, in no loop: whoever calls it does so for each batch.
bool IsOneStep(const Module& m, int function) {
  if (function <= 0 || m.functions()[function].name == kA_main) return false;
  bool backward = false, step = false;
  for (NodeId call : m.Calls({kA_backward, kA_manual_backward, kA_step})) {
    if (m.FunctionOf(call) != function || m.EnclosingLoop(call)) continue;
    (m.CalleeName(call) == kA_step ? step : backward) |= m.CalleeName(call) != kA_step || IsOptimizerStep(m, call);
  }
  return backward && step;
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
    bool step = !loop && ((IsStepFunction(m, flow, function) && m.functions()[function].name == kA_training_step) || IsOneStep(m, function));
    if (!training && !step) continue;
    if (training && (!StepsItself(m, flow, training) || Measures(m, training))) continue;
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
