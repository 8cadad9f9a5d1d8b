#include "lint/rules.h"

// LT138: a recurrent state that goes from batch to batch with the graph of all batches before.
namespace lowtide::lint {
namespace {

// The element of `output, hidden = model(x, hidden)` that is also an argument of the call.
NodeId CarriedState(const Module& m, NodeId assignment) {
  NodeId left = m.Child(assignment, Field::k_left), right = m.Child(assignment, Field::k_right);
  if (!left || !right || m.KindOf(right) != Kind::kCall) return 0;
  if (m.KindOf(left) != Kind::kPatternList && m.KindOf(left) != Kind::kTuplePattern) return 0;
  NodeId list = m.Child(right, Field::k_arguments);
  for (NodeId part = m.First(left); part; part = m.Next(part)) {
    if (m.KindOf(part) != Kind::kIdentifier) continue;
    for (NodeId argument = list ? m.First(list) : 0; argument; argument = m.Next(argument)) {
      NodeId value = m.KindOf(argument) == Kind::kKeywordArgument ? m.Child(argument, Field::k_value) : argument;
      if (value && m.Path(value) == m.Path(part)) return part;
    }
  }
  return 0;
}

// Nothing in the loop but `assignment` touches the state: no detach, no fresh start, no loop variable.
bool LeftAlone(const Module& m, NodeId loop, NodeId assignment, Atom state) {
  for (NodeId id = loop; id < m[loop].last; ++id) {
    Kind kind = m.KindOf(id);
    if (kind == Kind::kAssignment && id != assignment) {
      NodeId left = m.Child(id, Field::k_left);
      if (left && m.HasPath(left, state)) return false;
    } else if (kind == Kind::kFor) {
      NodeId left = m.Child(id, Field::k_left);
      if (left && m.HasPath(left, state)) return false;
    } else if (kind == Kind::kCall) {
      Atom name = m.CalleeName(id);
      if (name && HasHint(m.Name(name), {"detach", "repackage", "truncate", "reset", "init_hidden"})) return false;
      if (name && m.RootName(id) == state) return false;
    } else if (kind == Kind::kAttribute && m.RootName(id) == state) {
      return false;
    } else if (kind == Kind::kDelete && m.HasPath(id, state)) {
      return false;
    }
  }
  return true;
}

// The loop that differentiates in each of its iterations, and through which the state lives on.
NodeId DifferentiatingLoop(const Module& m, NodeId assignment) {
  for (NodeId loop = m.EnclosingLoop(assignment); loop; loop = m.EnclosingLoop(loop)) {
    for (NodeId backward : m.Calls(kA_backward)) {
      if (m.Inside(backward, loop) && backward > assignment && m.FunctionOf(backward) == m.FunctionOf(assignment) && IsBackwardCall(m, backward)) return loop;
    }
  }
  return 0;
}

}  // namespace

void CheckHiddenState(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (!m.Has(kA_backward) || IsTestFile(m.path())) return;
  for (NodeId assignment : m.Nodes(Kind::kAssignment)) {
    NodeId part = CarriedState(m, assignment);
    if (!part) continue;
    NodeId call = m.Child(assignment, Field::k_right), callee = m.Callee(call);
    const Value& value = scope.flow.Of(callee);
    if (!(value.flags & kModel) || value.flags & kLossFn || scope.flow.NoGradAt(assignment)) continue;
    Atom state = m.Path(part);
    NodeId loop = DifferentiatingLoop(m, assignment);
    if (!loop || !HasHint(m.Text(part), {"hid", "state", "memory", "mems", "carry", "hx", "h_", "_h", "c_", "cell"})) continue;
    if (!LeftAlone(m, loop, assignment, state)) continue;
    // A model of this project may cut the graph itself.
    Atom cls = scope.flow.InstanceClass(callee);
    int known = cls ? m.FindClass(cls) : -1;
    if (m.text().find("detach") != std::string_view::npos && known < 0) continue;
    if (known >= 0 && m.Text(m.classes()[known].node).find("detach") != std::string_view::npos) continue;
    std::string name(m.Text(part));
    report.Add(assignment, Severity::kError,
               {"`" + name + "` goes into the next iteration with its graph, while each iteration calls backward(): the second one raises RuntimeError, or with "
                             "retain_graph=True the graph grows with every batch",
                "`" + name + "` 带着计算图进入下一次迭代，而每次迭代都调用 backward()：第二次会抛出 RuntimeError，若加 retain_graph=True 则计算图随每个批次增长"},
               {"cut it at the start of each iteration: " + name + " = " + name + ".detach() (each tensor of a tuple)",
                "在每次迭代开始时切断：" + name + " = " + name + ".detach()（元组则逐个张量处理）"});
  }
}

}  // namespace lowtide::lint
