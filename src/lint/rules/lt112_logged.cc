#include "lint/rules.h"

// LT112 (preview): a tensor formatted, printed or handed to a logger in every step.
namespace lowtide::lint {
namespace {

bool IsLogCall(const Module& m, NodeId call) {
  Atom name = m.CalleeName(call);
  NodeId receiver = m.Receiver(call);
  switch (name) {
    case kA_print: return true;
    case kA_log:
    case kA_log_dict:
    case kA_log_metrics:
    case kA_add_scalar:
    case kA_add_scalars:
    case kA_set_postfix:
    case kA_set_postfix_str:
    case kA_set_description:
    case kA_info:
    case kA_debug:
    case kA_write: break;
    default: return false;
  }
  if (!receiver) return false;
  std::string_view text = m.Text(receiver);
  return HasHint(text, {"log", "wandb", "writer", "tqdm", "bar", "accelerator", "tracker", "run", "tb", "mlflow", "fabric", "epoch_iter", "iter", "loop", "train_tqdm"}) &&
         !m.IsTorch(m.Callee(call)) && !HasHint(text, {"math", "np", "torch"});
}

// Modulo of gradient accumulation is no logging interval.
bool LogsRarely(const Module& m, NodeId id, NodeId loop) {
  for (NodeId guard = GuardAround(m, id, loop); guard; guard = GuardAround(m, guard, loop)) {
    NodeId test = m.KindOf(guard) == Kind::kConditional ? 0 : m.Child(guard, Field::k_condition);
    if (test && IsPeriodicTest(m, test) && !HasHint(m.Text(test), {"accum"})) return true;
  }
  return false;
}

}  // namespace

void CheckLoggedTensor(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  const Flow& flow = scope.flow;
  if (!m.Has(kA_backward) && !m.Has(kA_manual_backward)) return;
  auto judge = [&](NodeId call, NodeId what) {
    const Value& value = flow.Of(what);
    NodeId loop = TrainingLoop(m, flow, call);
    if (!loop || LogsRarely(m, call, loop) || !(value.flags & kGrad)) return;
    Pending& pending = report.Add(call, Severity::kNote,
                                  {Quoted(m, what) + " goes to the log as an attached tensor in every step: the GPU is waited for, and a logger that keeps it keeps its graph",
               Quoted(m, what) + " 每一步都以带计算图的张量写入日志：要等待 GPU，而且记录器若保存它就保存了整个计算图"},
                                  {"log " + Quoted(m, what) + ".item() every N steps",
               "每 N 步记录一次 " + Quoted(m, what) + ".item()"});
    if (!NeedAttached(scope, value, pending)) report.Drop();
  };
  for (NodeId call : m.Nodes(Kind::kCall)) {
    Atom name = m.CalleeName(call);
    if (name >= kKnownAtoms || !IsLogCall(m, call)) continue;
    NodeId list = m.Child(call, Field::k_arguments);
    bool found = false;
    for (NodeId id = list; id && id < m[list].last && !found; ++id) {
      Kind kind = m.KindOf(id);
      if (kind == Kind::kInterpolation) {
        NodeId inner = m.First(id);
        if (inner && flow.Of(inner).flags & kGrad) judge(call, inner), found = true;
      } else if ((kind == Kind::kIdentifier || kind == Kind::kAttribute || kind == Kind::kSubscript) && flow.Of(id).flags & kGrad) {
        NodeId up = m[id].parent;
        Kind around = m.KindOf(up);
        bool handed = around == Kind::kArgumentList || (around == Kind::kKeywordArgument && m[id].field == Field::k_value) ||
                      (around == Kind::kPair && m[id].field == Field::k_value);
        if (around == Kind::kArgumentList && up != list) handed = m.CalleeName(m[up].parent) == kA_dict || m.CalleeName(m[up].parent) == kA_format;
        if (handed) judge(call, id), found = true;
      }
    }
  }
}

}  // namespace lowtide::lint
