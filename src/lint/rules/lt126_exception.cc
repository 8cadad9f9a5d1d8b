#include "lint/rules.h"

// LT126: an exception object kept in a container keeps its traceback's frames, and all tensors that were local there.
namespace lowtide::lint {

void CheckExceptionKept(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (IsTestFile(m.path())) return;
  for (NodeId call : m.Calls({kA_append, kA_appendleft, kA_add, kA_put})) {
    NodeId handler = m.Ancestor(call, {Kind::kExcept, Kind::kExceptGroup});
    NodeId given = m.Argument(call, 0), pattern = handler ? m.First(handler) : 0;
    if (!handler || !given || !pattern || m.KindOf(pattern) != Kind::kAsPattern) continue;
    Atom name = kNoAtom;
    for (NodeId part : m.Children(pattern)) {
      if (m.KindOf(part) == Kind::kAsTarget && m.First(part)) name = m[m.First(part)].atom;
    }
    if (!name) continue;
    // The bare object, alone or in a tuple, list or dict: not str(err), not err.args.
    bool kept = false;
    for (NodeId id = given; id < m[given].last; ++id) {
      if (m.KindOf(id) != Kind::kIdentifier || m[id].atom != name) continue;
      kept = true;
      for (NodeId up = id; up != given && kept; up = m[up].parent) {
        Kind kind = m.KindOf(m[up].parent);
        kept = kind == Kind::kTuple || kind == Kind::kList || kind == Kind::kDict || kind == Kind::kPair;
      }
      if (kept) break;
    }
    Atom path = m.Path(m.Receiver(call));
    NodeId loop = m.EnclosingLoop(handler);
    if (!kept || !path || !loop || !SurvivesLoop(m, call, path)) continue;
    // Where tensors are about: the loop trains or the file runs models in it.
    NodeId body = m.Child(loop, Field::k_body);
    bool tensors = CallsBackward(m, scope.flow, body) || CallsStep(m, scope.flow, body);
    for (NodeId id = body; id < m[body].last && !tensors; ++id) tensors = m.KindOf(id) == Kind::kCall && (scope.flow.Of(id).flags & kGrad);
    if (!tensors) continue;
    Pending& pending = report.Add(call, Severity::kWarning,
                                  {"the kept exception holds its traceback, and with it the local variables of every frame: batch, activations and graph of the failed step",
               "保存的异常持有其回溯，从而持有每一帧的局部变量：失败那一步的批次、激活值和计算图"},
                                  {"keep str(" + std::string(m.Name(name)) + ") and what identifies the sample, or call .with_traceback(None) on it",
               "只保存 str(" + std::string(m.Name(name)) + ") 和样本的标识，或对它调用 .with_traceback(None)"});
    if (m.KindOf(given) == Kind::kIdentifier) pending.diagnostic.fix = WrapText(m, given, "str(", ")", false, {"keep the message only", "只保存消息文本"});
  }
}

}  // namespace lowtide::lint
