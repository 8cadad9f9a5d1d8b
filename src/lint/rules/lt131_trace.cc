#include "lint/rules.h"

// LT131: torch.jit.trace, script or torch.compile in the step loop: each call leaves a compiled graph behind.
namespace lowtide::lint {

void CheckTraceInLoop(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  const Flow& flow = scope.flow;
  if (IsTestFile(m.path())) return;
  for (NodeId call : m.Calls({kA_trace, kA_script, kA_compile})) {
    std::string name = m.Qualified(m.Callee(call));
    if (name != "torch.jit.trace" && name != "torch.jit.script" && name != "torch.compile") continue;
    NodeId loop = TrainingLoop(m, flow, call);
    if (loop && IsEpochLoop(m, loop) && m.EnclosingLoop(call) == loop) continue;
    // In a function of this file that the loop calls.
    if (!loop) {
      int function = m.FunctionOf(call);
      for (NodeId other : m.Nodes(Kind::kCall)) {
        if (function <= 0 || flow.ResolveCall(other) != function || m.FunctionOf(other) == function) continue;
        NodeId around = TrainingLoop(m, flow, other);
        if (around && !IsEpochLoop(m, around) && !GuardAround(m, call, m.functions()[function].node)) loop = around;
      }
    }
    if (!loop) continue;
    bool once = false;  // `if traced is None`
    for (NodeId guard = GuardAround(m, call, loop); guard; guard = GuardAround(m, guard, loop)) {
      std::string_view test = m.Text(m.KindOf(guard) == Kind::kConditional ? guard : m.Child(guard, Field::k_condition));
      once |= test.find("None") != test.npos || test.find("not ") != test.npos || (test.find("==") != test.npos && test.find('%') == test.npos);
    }
    if (once) continue;
    report.Add(call, Severity::kWarning, {name + "() in the step loop compiles anew each time, and what it compiled before stays in native memory",
               name + "() 在训练循环中每次都重新编译，先前的编译结果留在本机内存中"},
               {"call it once, before the loop",
               "在循环之前只调用一次"});
  }
}

}  // namespace lowtide::lint
