#include <unordered_set>

#include "lint/rules.h"

// LT121 (preview): the GPU is waited for in every step.
namespace lowtide::lint {

void CheckSync(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  const Flow& flow = scope.flow;
  if (!m.Has(kA_backward) && !m.Has(kA_step)) return;
  std::unordered_set<NodeId> statements;
  for (NodeId call : m.Calls({kA_item, kA_cpu, kA_tolist, kA_numpy})) {
    NodeId receiver = m.Receiver(call);
    if (!receiver || m.Argument(call, 0)) continue;
    const Value& value = flow.Of(receiver);
    bool tensor = value.flags & (kGrad | kTensor | kMaybe | kLossNamed) || (value.dep && !(value.flags & kInstance));
    if (!tensor) continue;
    NodeId loop = m.EnclosingLoop(call);
    if (!loop || !IsTrainingLoop(m, flow, loop) || IsEpochLoop(m, loop)) {
      // The innermost loop must be the one that takes steps, unless that is the only loop there is.
      if (!loop || !IsTrainingLoop(m, flow, loop)) continue;
    }
    if (Periodic(m, call, loop) || !statements.insert(m.Statement(call)).second) continue;
    report.Add(call, Severity::kNote, {Quoted(m, call) + " waits for the GPU in every step",
               Quoted(m, call) + " 每一步都要等待 GPU"}, {"keep the tensor detached on the GPU and read it every N steps",
               "把 detach 后的张量留在 GPU 上，每 N 步读取一次"});
  }
}

}  // namespace lowtide::lint
