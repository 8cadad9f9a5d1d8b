#include "lint/rules.h"

// LT128: add_param_group() again and again: the optimizer keeps every group, its parameters and their state.
namespace lowtide::lint {
namespace {

// `step == 100`: happens once.
bool HappensOnce(const Module& m, NodeId call, NodeId loop) {
  for (NodeId guard = GuardAround(m, call, loop); guard; guard = GuardAround(m, guard, loop)) {
    NodeId test = m.KindOf(guard) == Kind::kConditional ? 0 : m.Child(guard, Field::k_condition);
    if (!test) continue;
    std::string_view text = m.Text(test);
    bool modulo = text.find('%') != text.npos;
    if (!modulo && (text.find("==") != text.npos || text.find("not ") != text.npos || text.find(" in ") != text.npos)) return true;
  }
  return false;
}

}  // namespace

void CheckParamGroups(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (IsTestFile(m.path())) return;
  for (NodeId call : m.Calls(kA_add_param_group)) {
    NodeId receiver = m.Receiver(call), loop = TrainingLoop(m, scope.flow, call);
    if (!receiver || !loop || HappensOnce(m, call, loop)) continue;
    Atom optimizer = m.Path(receiver);
    if (optimizer && ResetInside(m, loop, optimizer)) continue;  // a new optimizer each time
    report.Add(call, Severity::kWarning,
               {Quoted(m, receiver) + " gets one more parameter group each time: it keeps all of them, with their parameters and moments",
               Quoted(m, receiver) + " 每次都多一个参数组：全部保留，连同参数和动量"},
               {"replace the parameter in its group and drop its entry of optimizer.state, or make a new optimizer",
               "在原参数组中替换参数并删除 optimizer.state 中的旧项，或新建优化器"});
  }
}

}  // namespace lowtide::lint
