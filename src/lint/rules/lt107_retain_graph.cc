#include <algorithm>
#include <unordered_set>

#include "lint/rules.h"

// LT107: retain_graph=True without a second backward that needs the graph.
namespace lowtide::lint {
namespace {

// Where a path is last given a value before `at`.
NodeId LastAssigned(const Module& m, NodeId body, Atom path, NodeId at) {
  NodeId last = 0;
  for (NodeId id : m.Nodes(Kind::kAssignment)) {
    NodeId left = m.Child(id, Field::k_left);
    if (m.Inside(id, body) && id < at && left && m.HasPath(left, path)) last = id;
  }
  return last;
}

// Everything `target` is computed from within the function, as paths, through attached assignments. With `doubts` also
// what an unknown function made: it may hold a graph as well.
std::unordered_set<Atom> Sources(const Module& m, const Flow& flow, NodeId body, NodeId target, bool doubts) {
  std::unordered_set<Atom> found;
  auto add = [&](NodeId outer) {
    for (NodeId id = outer; id < m[outer].last; ++id) {
      Kind kind = m.KindOf(id);
      if (kind != Kind::kIdentifier && kind != Kind::kAttribute && kind != Kind::kSubscript) continue;
      const Value& value = flow.Of(id);
      if (value.flags & (kNumber | kTensor | kModel | kLossFn | kOptimizer)) continue;
      bool unknown = doubts && value.flags == 0 && !value.params && kind == Kind::kIdentifier && LastAssigned(m, body, m[id].atom, target) != 0;
      if (!value.attached() && id != target && !unknown) continue;
      if (Atom path = m.Path(id)) found.insert(path);
    }
  };
  add(target);
  for (size_t before = 0, rounds = 0; before != found.size() && rounds < 10; ++rounds) {
    before = found.size();
    for (NodeId id : m.Nodes(Kind::kAssignment)) {
      if (!m.Inside(id, body)) continue;
      NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
      if (!left || !right) continue;
      for (NodeId at = left; at < m[left].last; ++at) {
        Kind kind = m.KindOf(at);
        if ((kind == Kind::kIdentifier || kind == Kind::kAttribute || kind == Kind::kSubscript) && m.Path(at) && found.count(m.Path(at))) {
          add(right);
          break;
        }
      }
    }
    for (NodeId id : m.Nodes(Kind::kAugmentedAssignment)) {
      NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
      if (left && right && m.Inside(id, body) && found.count(m.Path(left))) add(right);
    }
  }
  found.erase(kA_self);
  return found;
}

// The loss is what a callable handed to this function makes of settings alone: `loss = loss_fn(design, n)`. Whether its
// graph reaches into the next call only that callable knows.
bool FromGivenClosure(const Module& m, const Flow& flow, int function, NodeId target) {
  const FunctionInfo& info = m.functions()[function];
  for (NodeId id : m.Nodes(Kind::kAssignment)) {
    NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
    if (!left || !right || id > target || m.FunctionOf(id) != function || m.KindOf(right) != Kind::kCall) continue;
    NodeId callee = m.Callee(right);
    if (!m.Path(target) || !m.HasPath(left, m.Path(target)) || m.KindOf(callee) != Kind::kIdentifier) continue;
    if (std::find(info.parameters.begin(), info.parameters.end(), m[callee].atom) == info.parameters.end()) continue;
    bool computed = false;  // criterion(model(x), y) is a step of this very loop
    NodeId list = m.Child(right, Field::k_arguments);
    for (NodeId argument : list ? m.Children(list) : std::vector<NodeId>()) computed |= flow.Of(argument).attached() || (flow.Of(argument).flags & (kModel | kData));
    if (!computed) return true;
  }
  return false;
}

// One step's backward passes over what a method of the same object yields: parts of one graph, perhaps.
bool OverOwnParts(const Module& m, const Flow& flow, NodeId loop) {
  NodeId items = loop && m.KindOf(loop) == Kind::kFor ? m.Child(loop, Field::k_right) : 0;
  if (!items || m.KindOf(items) != Kind::kCall || m.RootName(items) != kA_self || flow.Of(items).flags & kLoader) return false;
  return !HasHint(m.Name(m.CalleeName(items)), {"load", "batch", "data", "epoch"}) && !CallsStep(m, flow, m.Child(loop, Field::k_body));
}

}  // namespace

void CheckRetainGraph(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  const Flow& flow = scope.flow;
  for (NodeId backward : m.Calls({kA_backward, kA_manual_backward})) {
    NodeId retain = m.Keyword(backward, kA_retain_graph);
    if (!retain || m.KindOf(retain) != Kind::kTrue || !IsBackwardCall(m, backward)) continue;
    NodeId create = m.Keyword(backward, kA_create_graph);
    if (create && m.KindOf(create) == Kind::kTrue) continue;
    int function = m.FunctionOf(backward);
    NodeId body = function > 0 ? m.functions()[function].body : 0;
    NodeId loop = m.EnclosingLoop(backward);
    if (!loop && !CallsStep(m, flow, body)) continue;
    if (IsTestFile(m.path())) continue;
    NodeId target = BackwardTarget(m, backward);
    if (!target) continue;
    std::unordered_set<Atom> mine = Sources(m, flow, body, target, true);
    // A later backward of a loss that was computed already and shares part of the graph needs it.
    bool needed = false;
    Atom through = kNoAtom;
    for (NodeId other : m.Calls({kA_backward, kA_manual_backward, kA_grad, kA_step})) {
      if (other == backward || !m.Inside(other, body) || other < backward) continue;
      bool takes = m.CalleeName(other) == kA_grad || m.CalleeName(other) == kA_step;  // optim.step(loss) differentiates
      NodeId second = takes ? m.Argument(other, 0, kA_outputs) : BackwardTarget(m, other);
      if (!second) continue;
      Atom path = m.Path(second);
      // In the other branch of an `if`, only one of the two runs.
      NodeId branch = m.Ancestor(backward, {Kind::kIf});
      if (branch && m.Inside(other, branch) && m.Ancestor(other, {Kind::kElse, Kind::kElif}) && !m.Inside(backward, m.Ancestor(other, {Kind::kElse, Kind::kElif}))) continue;
      NodeId made = path ? LastAssigned(m, body, path, other) : 0;
      std::unordered_set<Atom> theirs = Sources(m, flow, body, second, true);
      bool shares = path && (path == m.Path(target) || mine.count(path)) && made < backward;
      if (made < backward || !path) {
        for (Atom source : theirs) shares |= mine.count(source) && source != path;
        shares |= theirs.empty() || !path;
      }
      // Computed after this backward, from something that was there before it: the graph behind that is walked twice.
      for (Atom source : theirs) {
        NodeId since = mine.count(source) && source != path ? LastAssigned(m, body, source, other) : 0;
        if (since != 0 && since < backward && (!loop || m.Inside(since, loop)) && source < 0x80000000u) through = through ? through : source;
      }
      needed |= shares;
    }
    // Something else of this graph is returned: the caller differentiates it, perhaps.
    for (NodeId back : m.Nodes(Kind::kReturn)) {
      if (needed || function == 0 || m.FunctionOf(back) != function || back < backward || !m.First(back)) continue;
      Kind kind = m.KindOf(m.First(back));
      bool many = kind == Kind::kExpressionList || kind == Kind::kTuple;
      for (NodeId part : many ? m.Children(m.First(back)) : std::vector<NodeId>{m.First(back)}) {
        if (!flow.Of(part).attached() || m.Path(part) == m.Path(target)) continue;
        for (Atom source : Sources(m, flow, body, part, false)) needed |= mine.count(source) && source != m.Path(part);
      }
    }
    // A loop inside which the same graph is differentiated again: computed before the loop.
    for (NodeId inner = loop; inner && !needed; inner = m.EnclosingLoop(inner)) {
      NodeId inner_body = m.Child(inner, Field::k_body);
      for (Atom source : Sources(m, flow, body, target, false)) {
        bool inside = false, outside = false;
        for (NodeId id : m.Nodes(Kind::kAssignment)) {
          NodeId left = m.Child(id, Field::k_left);
          if (!left || !m.Inside(id, body) || !m.HasPath(left, source)) continue;
          (m.Inside(id, inner_body) ? inside : outside) = true;
        }
        NodeId left = m.KindOf(inner) == Kind::kFor ? m.Child(inner, Field::k_left) : 0;
        if (left && m.HasPath(left, source)) inside = true;
        if (outside && !inside) needed = true;
      }
      if (m.KindOf(inner) == Kind::kFor) {
        // `for loss in losses: loss.backward(retain_graph=True)`: the losses share what they were made of.
        NodeId left = m.Child(inner, Field::k_left);
        if (left && m.HasPath(left, m.Path(target))) needed = true;
        NodeId items = m.Child(inner, Field::k_right);
        if (items && m.KindOf(target) == Kind::kSubscript && left && m.HasPath(target, m.Path(left))) needed = true;
      }
    }
    // Meta-learning: a clone or an adapted copy holds the graph that made its parameters, and is used again.
    if (m.Calls({kA_adapt}).size() && m.Calls({kA_clone}).size()) continue;
    if (FromGivenClosure(m, flow, function, target) || OverOwnParts(m, flow, loop)) continue;
    // State carried from step to step (an RNN's hidden state) keeps the old graph alive on purpose or by mistake.
    if (needed) continue;
    if (through) {
      std::string shared(m.Name(through)), what = Quoted(m, target);
      report.Add(backward, Severity::kWarning,
                 {"retain_graph=True keeps the whole graph after " + what + ".backward() because `" + shared + "` goes into another backward of the same step",
                  "retain_graph=True 使整个计算图在 " + what + ".backward() 之后继续保留，因为 `" + shared + "` 在同一步中还参与另一次 backward"},
                 {"detach `" + shared + "` where its gradient is not wanted, or add the losses and call backward() once",
                  "在不需要梯度的地方对 `" + shared + "` 调用 detach()，或把损失相加后只调用一次 backward()"});
      continue;
    }
    Pending& pending = report.Add(backward, Severity::kWarning,
                                  {"retain_graph=True keeps the whole graph after " + Quoted(m, target) +
                                      ".backward(), and no later backward in this step needs it",
               "retain_graph=True 使整个计算图在 " + Quoted(m, target) + ".backward() 之后继续保留，而这一步中之后没有 backward 需要它"},
                                  {"drop retain_graph; if an error about a freed graph follows, detach() what the next step or loss reuses",
               "去掉 retain_graph；如果随后报计算图已释放的错误，请对下一步或另一个损失复用的张量调用 detach()"});
    NodeId argument = m[retain].parent;
    uint32_t start = m[argument].start, end = m[argument].end;
    // Take the comma with it.
    std::string_view text = m.text();
    uint32_t before = start;
    while (before > 0 && (text[before - 1] == ' ' || text[before - 1] == '\n' || text[before - 1] == '\t')) --before;
    if (before > 0 && text[before - 1] == ',') {
      start = before - 1;
    } else {
      while (end < text.size() && (text[end] == ' ' || text[end] == ',')) ++end;
    }
    pending.diagnostic.fix = Fix{false, "drop retain_graph", {{start, end, ""}}, "去掉 retain_graph"};
  }
}

}  // namespace lowtide::lint
