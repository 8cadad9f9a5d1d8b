#include "lint/rules.h"

// LT125: backward(create_graph=True) makes a cycle of each parameter and its .grad; PyTorch itself warns of it.
namespace lowtide::lint {

void CheckCreateGraph(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (IsTestFile(m.path())) return;
  for (NodeId backward : m.Calls({kA_backward, kA_manual_backward})) {
    NodeId create = m.Keyword(backward, kA_create_graph);
    if (!create || m.KindOf(create) != Kind::kTrue || !IsBackwardCall(m, backward)) continue;
    int function = m.FunctionOf(backward);
    NodeId outer = function > 0 ? m.functions()[function].body : 0;
    // Gradients that are dropped in the same function break the cycle.
    bool dropped = false;
    for (NodeId id : m.Nodes(Kind::kAssignment)) {
      NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
      dropped |= left && right && m.Inside(id, outer) && m.KindOf(left) == Kind::kAttribute && m.LastName(left) == kA_grad && m.KindOf(right) == Kind::kNone;
    }
    for (NodeId id : m.Nodes(Kind::kDelete)) dropped |= m.Inside(id, outer) && m.Contains(id, {kA_grad});
    if (dropped) continue;
    report.Add(backward, Severity::kWarning,
               {"backward(create_graph=True) ties each parameter to its .grad, whose graph leads back to the parameter: only the garbage collector, if that, frees them",
               "backward(create_graph=True) 使每个参数与其 .grad 互相引用：.grad 的计算图又指回参数，只有垃圾回收才可能释放"},
               {"use torch.autograd.grad(loss, params, create_graph=True), or set .grad to None once it is used",
               "改用 torch.autograd.grad(loss, params, create_graph=True)，或用完后把 .grad 设为 None"});
  }
}

}  // namespace lowtide::lint
