#include "lint/rules.h"

// LT132: figures that pyplot is never told to close: it keeps every one.
namespace lowtide::lint {

// A whole training is over when the figure is drawn: one per run, not per step.
static bool TrainsBefore(const Module& m, const Flow& flow, NodeId body, NodeId call) {
  for (NodeId loop = body; loop < call; ++loop) {
    bool loops = m.KindOf(loop) == Kind::kFor || m.KindOf(loop) == Kind::kWhile;
    if (loops && m[loop].last <= call && IsTrainingLoop(m, flow, loop)) return true;
  }
  return false;
}

void CheckFigures(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  const Flow& flow = scope.flow;
  if (IsTestFile(m.path())) return;
  if (!m.Calls({kA_close, kA_clf, kA_cla}).empty() || m.Has(kA_close)) return;
  for (NodeId call : m.Calls({kA_figure, kA_subplots})) {
    if (m.Qualified(m.Callee(call)).find("matplotlib.pyplot.") != 0) continue;
    if (NodeId number = m.Argument(call, 0, kA_num); number && m.CalleeName(call) == kA_figure && m.KindOf(number) != Kind::kTuple) continue;  // one by number
    NodeId loop = TrainingLoop(m, flow, call);
    int function = m.FunctionOf(call);
    if (!loop && m.EnclosingLoop(call) == 0 && function > 0 && TrainsBefore(m, flow, m.functions()[function].body, call)) continue;
    for (NodeId other : m.Nodes(Kind::kCall)) {
      if (loop || function <= 0 || flow.ResolveCall(other) != function || m.FunctionOf(other) == function) continue;
      loop = TrainingLoop(m, flow, other);
    }
    if (!loop) continue;
    // A notebook's backend closes what it has shown.
    bool shown = false;
    for (NodeId show : m.Calls(kA_show)) shown |= m.FunctionOf(show) == function && show > call;
    if (shown && m.path().ends_with(".ipynb")) continue;
    report.Add(call, Severity::kWarning, {"a figure is opened in the training loop and never closed: pyplot keeps every figure until plt.close()",
               "训练循环中打开的图形从未关闭：pyplot 会保留每个图形，直到 plt.close()"},
               {"plt.close(fig) after saving it",
               "保存后调用 plt.close(fig)"});
  }
}

}  // namespace lowtide::lint
