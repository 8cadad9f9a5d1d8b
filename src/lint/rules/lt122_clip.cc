#include "lint/rules.h"

// LT122 (off): a training loop without gradient clipping.
namespace lowtide::lint {

void CheckClipping(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  const Flow& flow = scope.flow;
  for (NodeId call : m.Calls(kA_step)) {
    if (!IsOptimizerStep(m, call) || !HasHint(m.Text(m.Receiver(call)), {"optim", "opt", "scaler"})) continue;
    int function = m.FunctionOf(call);
    NodeId outer = function > 0 ? m.functions()[function].body : 0;
    bool backward = false;
    for (NodeId other : m.Calls({kA_backward, kA_manual_backward})) backward |= m.Inside(other, outer) && other < call;
    if (!backward) continue;
    bool clips = false;
    for (NodeId id = outer; id < m[outer].last && !clips; ++id) {
      clips = m.KindOf(id) == Kind::kIdentifier && HasHint(m.Name(m[id].atom), {"clip"});
    }
    if (clips || CallsAny(m, flow, outer, {kA_clip_grad_norm_, kA_clip_grad_value_, kA_clip_grad_norm})) continue;
    report.Add(call, Severity::kNote, {"no gradient clipping before this step",
               "这次更新之前没有梯度裁剪"}, {"torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) before step()",
               "在 step() 之前调用 torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"});
  }
}

}  // namespace lowtide::lint
