#include "lint/rules.h"

// LT134: backward() of a sum that goes on over the iterations.
namespace lowtide::lint {
namespace {

// `total` of total.backward(), (total / n).backward(): what the sum is called.
NodeId SumOf(const Module& m, NodeId target) {
  while (target) {
    Kind kind = m.KindOf(target);
    if (kind == Kind::kParenthesized) target = m.First(target);
    else if (kind == Kind::kBinary) target = m.Child(target, Field::k_left);
    else break;
  }
  return target && m.KindOf(target) == Kind::kIdentifier ? target : 0;
}

// `total += loss` or `total = total + loss` in the loop, before `backward`.
NodeId AdditionBefore(const Scope& scope, NodeId loop, NodeId backward, Atom sum) {
  const Module& m = scope.module;
  NodeId body = m.Child(loop, Field::k_body);
  auto fits = [&](NodeId id, NodeId added) {
    if (!body || !m.Inside(id, body) || id > backward || m.Inside(backward, id)) return false;
    const Value& value = scope.flow.Of(added);
    return value.attached() && !(value.flags & (kNumber | kContainer)) && !scope.flow.NoGradAt(id);
  };
  for (NodeId id : m.Nodes(Kind::kAugmentedAssignment)) {
    NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
    if (left && right && m.Path(left) == sum && fits(id, right)) return id;
  }
  for (NodeId id : m.Nodes(Kind::kAssignment)) {
    NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
    if (!left || !right || m.Path(left) != sum || m.KindOf(right) != Kind::kBinary) continue;
    NodeId first = m.Child(right, Field::k_left), second = m.Child(right, Field::k_right);
    if (!first || !second) continue;
    if (m.Path(first) == sum && fits(id, second)) return id;
    if (m.Path(second) == sum && fits(id, first)) return id;
  }
  return 0;
}

// The loop ends after this backward, or the sum is cut from its graph somewhere in the loop.
bool StopsOrCuts(const Module& m, NodeId loop, NodeId backward, Atom sum) {
  for (NodeId next = m.Statement(backward); next; next = m.Next(next)) {
    for (NodeId id = next; id < m[next].last; ++id) {
      Kind kind = m.KindOf(id);
      if (kind == Kind::kBreak || kind == Kind::kReturn || kind == Kind::kRaise || kind == Kind::kYield) return true;
    }
  }
  for (NodeId call : m.Calls({kA_detach, kA_detach_, kA_item, kA_zero_})) {
    if (m.Inside(call, loop) && m.Path(m.Receiver(call)) == sum && m.CalleeName(call) != kA_item) return true;
    NodeId assignment = m.CalleeName(call) == kA_item ? m.Ancestor(call, {Kind::kAssignment}) : 0;
    if (assignment && m.Inside(assignment, loop) && m.Path(m.Child(assignment, Field::k_left)) == sum) return true;
  }
  return false;
}

}  // namespace

void CheckRunningSum(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  for (NodeId backward : m.Calls({kA_backward, kA_manual_backward})) {
    NodeId loop = m.EnclosingLoop(backward);
    if (!loop || !IsBackwardCall(m, backward) || IsTestFile(m.path())) continue;
    NodeId target = BackwardTarget(m, backward), sum = target ? SumOf(m, target) : 0;
    Atom path = sum ? m.Path(sum) : static_cast<Atom>(kNoAtom);
    if (!path || ResetInside(m, loop, path, backward)) continue;
    NodeId addition = AdditionBefore(scope, loop, backward, path);
    if (!addition || m.FunctionOf(addition) != m.FunctionOf(backward)) continue;
    // Set anew on the way, even if from itself in part: `loss = f(loss)` is no sum.
    if (ResetInside(m, loop, path) || StopsOrCuts(m, loop, backward, path)) continue;
    NodeId retain = m.Keyword(backward, kA_retain_graph);
    bool retained = retain && m.KindOf(retain) != Kind::kFalse;
    std::string name(m.Text(sum)), line = std::to_string(m.Line(m[addition].start));
    report.Add(backward, Severity::kError,
               {"`" + name + "` goes on adding up (line " + line + ") after it was differentiated: " +
                    (retained ? "each backward() runs through the graphs of all iterations before, which pile up in memory and count again"
                              : "from the second iteration on backward() meets graphs that are freed already and raises RuntimeError"),
                "`" + name + "` 在求导之后仍继续累加（第 " + line + " 行）：" +
                    (retained ? "每次 backward() 都要重走此前所有迭代的计算图，它们堆积在内存中并被重复计入"
                              : "从第二次迭代起 backward() 会遇到已释放的计算图并抛出 RuntimeError")},
               {"differentiate each iteration's own loss, and keep the sum as a number: `" + name + " += loss.item()`",
                "对每次迭代自己的损失求导，总和只保存数值：`" + name + " += loss.item()`"});
  }
}

}  // namespace lowtide::lint
