#include "lint/rules.h"

// LT110: exponential moving averages that carry a graph, want gradients, or copy the model over and over.
namespace lowtide::lint {
namespace {

bool IsAverageName(std::string_view name) {
  return HasHint(name, {"ema", "shadow", "averaged", "avg_model", "model_avg", "moving_average", "teacher", "momentum_enc", "momentum_model", "swa_model"}) &&
         !HasHint(name, {"schema", "semantic", "remain", "member", "thematic", "seman", "tema", "cinema"});
}

bool Freezes(const Module& m, NodeId outer) {
  if (m.Contains(outer, {kA_requires_grad_, kA_requires_grad, kA_no_grad, kA_inference_mode, kA_detach_, kA_set_requires_grad, kA_freeze})) return true;
  for (NodeId id = outer; id < m[outer].last; ++id) {
    if (m.KindOf(id) == Kind::kIdentifier && HasHint(m.Name(m[id].atom), {"freeze", "requires_grad", "frozen"})) return true;
  }
  return false;
}

// deepcopy(model) kept as the average, still wanting gradients.
void CheckCopy(const Scope& scope, Reporter& report, NodeId call) {
  const Module& m = scope.module;
  NodeId source = m.Argument(call, 0);
  if (!source) return;
  NodeId assignment = m.Ancestor(call, {Kind::kAssignment});
  NodeId left = assignment ? m.Child(assignment, Field::k_left) : 0;
  int function = m.FunctionOf(call);
  int cls = m.ClassOf(call);
  // deepcopy(ema).state_dict(): a whole module copied to be thrown away
  NodeId up = m[call].parent;
  bool to_state = false;
  NodeId copied = call;
  while (m.KindOf(up) == Kind::kAttribute || m.KindOf(up) == Kind::kCall) {
    if (m.KindOf(up) == Kind::kAttribute && m.LastName(up) == kA_state_dict) to_state = true;
    copied = up;
    up = m[up].parent;
  }
  std::string_view source_name = m.Name(m.LastName(source));
  const Value& value = scope.flow.Of(source);
  bool is_model = value.flags & kModel || HintsOf(source_name) & kHintModel || IsAverageName(source_name);
  if (to_state && is_model && m.CalleeName(copied) != kA_load_state_dict) {
    bool repeats = m.EnclosingLoop(call) || (function > 0 && m.functions()[function].name != kA___init__);
    if (repeats) {
      report.Add(call, Severity::kWarning,
                 {"the whole module " + Quoted(m, source) + " is copied each time only to read its state_dict(): twice its memory while it lasts",
               "每次只为读取 state_dict() 就复制整个模块 " + Quoted(m, source) + "：期间占用两倍内存"},
                 {"take state_dict() of the module itself and convert or move each tensor: {k: v.detach().to(dtype) for k, v in module.state_dict().items()}",
               "直接取模块自身的 state_dict()，再逐个转换或移动张量：{k: v.detach().to(dtype) for k, v in module.state_dict().items()}"});
    }
    return;
  }
  if (!left || !is_model) return;
  std::string_view target = m.Name(m.LastName(left));
  bool averages = IsAverageName(target) || (cls >= 0 && HasHint(m.Name(m.classes()[cls].name), {"ema", "MovingAverage", "moving_average"}) && HasHint(target, {"model", "ema", "module"}));
  if (!averages || HasHint(target, {"kwargs", "config", "cfg", "args", "param", "opt", "state"})) return;
  NodeId outer = cls >= 0 ? m.classes()[cls].node : function > 0 ? m.functions()[function].body : 0;
  // Frozen right there, or by a loop over its parameters.
  bool frozen = Freezes(m, function > 0 ? m.functions()[function].body : 0);
  if (!frozen && cls >= 0) {
    for (NodeId other : m.Calls({kA_requires_grad_, kA_set_requires_grad, kA_freeze, kA_detach_})) frozen |= m.Inside(other, outer);
    for (NodeId id : m.Nodes(Kind::kAssignment)) {
      NodeId to = m.Child(id, Field::k_left);
      frozen |= m.Inside(id, outer) && to && m.KindOf(to) == Kind::kAttribute && m.LastName(to) == kA_requires_grad;
    }
  }
  if (frozen) return;
  report.Add(call, Severity::kNote,
             {Quoted(m, left) + " is a copy that still wants gradients: autograd records what it computes, and its .grad can be filled",
               Quoted(m, left) + " 是仍需要梯度的副本：自动求导会记录它的计算，其 .grad 也可能被填充"},
             {"call .requires_grad_(False) on the copy",
               "对副本调用 .requires_grad_(False)"});
}

// avg = decay * avg + (1 - decay) * param, over parameters, without detach.
void CheckUpdate(const Scope& scope, Reporter& report, NodeId loop) {
  const Module& m = scope.module;
  NodeId items = m.Child(loop, Field::k_right), left = m.Child(loop, Field::k_left), body = m.Child(loop, Field::k_body);
  if (!items || !left || !body || !m.Contains(items, {kA_parameters, kA_named_parameters})) return;
  if (scope.flow.NoGradAt(body)) return;
  int function = m.FunctionOf(loop);
  std::string_view name = m.Name(m.functions()[function].name);
  for (NodeId id = body; id < m[body].last; ++id) {
    if (m.KindOf(id) != Kind::kAssignment) continue;
    NodeId target = m.Child(id, Field::k_left), sum = m.Child(id, Field::k_right);
    if (!target || !sum) continue;
    while (m.KindOf(sum) == Kind::kParenthesized && m.First(sum)) sum = m.First(sum);
    if (m.KindOf(sum) != Kind::kBinary || scope.flow.NoGradAt(id)) continue;
    if (m.KindOf(target) == Kind::kIdentifier) continue;
    std::string_view text = m.Text(sum);
    if (text.find('+') == text.npos || text.find('*') == text.npos) continue;
    if (!HasHint(text, {"decay", "alpha", "beta", "momentum", "ema", "tau", "rate", "1 -", "1.0 -", "1. -", "mu"})) continue;
    if (m.LastName(target) == kA_data || m.LastName(target) == kA_grad) continue;
    // A loop variable that is a parameter, used bare.
    bool bare = false;
    for (NodeId at = sum; at < m[sum].last; ++at) {
      if (m.KindOf(at) != Kind::kIdentifier || !m.HasPath(left, m[at].atom)) continue;
      NodeId up = m[at].parent;
      if (m.KindOf(up) == Kind::kSubscript && m[at].field != Field::k_value) continue;  // a key
      if (m.KindOf(up) != Kind::kAttribute || m[at].field == Field::k_attribute) bare |= HasHint(m.Name(m[at].atom), {"param", "p", "w", "cpt", "online", "model", "v"});
    }
    if (!bare || text.find("detach") != text.npos || text.find(".data") != text.npos) continue;
    if (!HasHint(name, {"ema", "average", "update", "momentum", "shadow", "moving", "step", "train"})) continue;
    report.Add(id, Severity::kError,
               {"the average " + Quoted(m, target) + " is computed with autograd on: every update hangs one more graph onto it",
               "滑动平均 " + Quoted(m, target) + " 在自动求导开启时计算：每次更新都会再挂上一段计算图"},
               {"update in place under torch.no_grad(): avg.lerp_(param, 1 - decay)",
               "在 torch.no_grad() 下原地更新：avg.lerp_(param, 1 - decay)"});
  }
}

}  // namespace

void CheckEma(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  for (NodeId call : m.Calls(kA_deepcopy)) CheckCopy(scope, report, call);
  if (!m.Has(kA_parameters) && !m.Has(kA_named_parameters)) return;
  for (NodeId loop : m.Nodes(Kind::kFor)) CheckUpdate(scope, report, loop);
}

}  // namespace lowtide::lint
