#include "lint/rules.h"

// LT103: a meter's update() that adds up what it is given, called with an attached tensor.
namespace lowtide::lint {

void CheckMeter(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  const Flow& flow = scope.flow;
  for (NodeId call : m.Calls({kA_update, kA_add, kA_push, kA_log, kA_record, kA_add_value, kA_put, kA_accumulate})) {
    NodeId receiver = m.Receiver(call);
    Atom cls = flow.InstanceClass(receiver);
    if (!receiver || !cls || flow.NoGradAt(call)) continue;
    bool meter_like = m.CalleeName(call) == kA_update || HasHint(m.Name(cls), {"meter", "avg", "average", "metric", "loss", "acc", "stat", "track", "running", "score", "record", "monitor", "log"});
    if (!meter_like || IsTestFile(m.path())) continue;
    int function = m.FunctionOf(call);
    for (int i = 0; i < 4; ++i) {
      NodeId given = m.Argument(call, i);
      if (!given) break;
      const Value& value = flow.Of(given);
      if (!MayBeAttached(scope, value) || value.flags & (kContainer | kModel | kOptimizer | kLoader)) continue;
      std::string meter = Quoted(m, receiver), what = Quoted(m, given);
      Pending& pending = report.Add(call, Severity::kWarning,
                                    {meter + " (" + std::string(m.Name(cls)) + ") keeps adding to what it is given, and " + what +
                                        " still has its autograd graph: graph nodes pile up with every step",
               meter + "（" + std::string(m.Name(cls)) + "）不断累加传入的值，而 " + what + " 仍带有计算图：图节点逐步堆积"},
                                    {"pass " + what + ".item(), or detach inside " + std::string(m.Name(m.CalleeName(call))) + "()",
               "传入 " + what + ".item()，或在 " + std::string(m.Name(m.CalleeName(call))) + "() 内 detach"});
      pending.Needs({Ask::kKeeps, false, static_cast<uint8_t>(i + 1), 0, HashName(m.Name(m.CalleeName(call))), HashName(m.Name(cls))});
      if (!NeedAttached(scope, value, pending)) {
        report.Drop();
        continue;
      }
      // What is not called a loss may be any object: the project itself must say that it is attached.
      if (!(HintsOf(m.Text(given)) & kHintLoss)) {
        for (Query& query : pending.queries) query.confirm |= query.ask == Ask::kAttached;
      }
      if (function > 0 && !CallsBackward(m, flow, m.functions()[function].body)) {
        pending.Needs({Ask::kCallerHasGrad, false, 255, 0, HashName(m.Name(m.functions()[function].name)), 0});
      }
      pending.diagnostic.fix = AppendText(m, given, ".detach()", true, {"detach what the meter gets", "传入前先 detach"});
      break;
    }
  }
}

}  // namespace lowtide::lint
