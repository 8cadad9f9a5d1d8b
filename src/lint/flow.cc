#include "lint/flow.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "lint/executor.h"

namespace lowtide::lint {

uint8_t HintsOf(std::string_view name) {
  if (name.size() > 64) return 0;
  char lower[64];
  std::transform(name.begin(), name.end(), lower, [](unsigned char c) { return std::tolower(c); });
  std::string_view n(lower, name.size());
  while (!n.empty() && n.front() == '_') n.remove_prefix(1);
  while (!n.empty() && n.back() == '_') n.remove_suffix(1);
  auto is = [&](std::initializer_list<std::string_view> names) { return std::find(names.begin(), names.end(), n) != names.end(); };
  auto ends = [&](std::initializer_list<std::string_view> tails) {
    return std::any_of(tails.begin(), tails.end(), [&](auto tail) { return n.ends_with(tail); });
  };
  uint8_t hints = 0;
  if (is({"model", "net", "network", "module", "generator", "discriminator", "encoder", "decoder", "critic", "actor", "policy",
          "backbone", "unet", "vae", "gan", "classifier", "student", "netg", "netd", "gen", "disc", "transformer", "ddp_model",
          "agent", "policy_net", "value_net", "pinn", "rnn", "cnn", "mlp", "lstm", "gnn", "resnet", "bert", "vit", "detector"}) ||
      ends({"_model", "_net", "_network", "_module", "_encoder", "_decoder", "_generator", "_discriminator", "model", "wrapper"}) ||
      n.starts_with("net_") || n.starts_with("model_")) {
    hints |= kHintModel;
  }
  if (n.find("loss") != n.npos || n.find("criterion") != n.npos || n.find("objective") != n.npos || is({"criteria", "nll", "elbo"})) {
    hints |= kHintLoss;
  }
  if (n.find("loader") != n.npos || ends({"_iter", "iterator", "batches"}) || is({"dl", "train_dl", "val_dl", "valid_dl", "test_dl"})) {
    hints |= kHintLoader;
  }
  if (n.find("optim") != n.npos || is({"opt", "opt_g", "opt_d", "g_opt", "d_opt"})) hints |= kHintOptimizer;
  if (n.find("meter") != n.npos || n.find("metric") != n.npos || n.find("tracker") != n.npos || n.find("stats") != n.npos) {
    hints |= kHintMeter;
  }
  if (n.find("teacher") != n.npos || n.find("ema") == 0 || ends({"_ema"}) || n.find("target_") == 0 || ends({"_target"}) ||
      n.find("frozen") != n.npos || n.starts_with("ref_") || n.starts_with("reference") || n.starts_with("old_")) {
    hints |= kHintFrozen;
  }
  return hints;
}

bool IsBuilderName(std::string_view name) {
  if (name == "classifier") return false;
  return HasHint(name, {"create", "build", "get_", "make", "init", "load", "setup", "import", "restore", "prepare", "wrap", "convert", "define",
                        "select", "instantiate", "_cls", "class", "register", "from_", "save", "set_", "add_", "parse", "update", "reset",
                        "freeze", "check", "compile", "export", "delete", "list", "print", "log", "count", "copy", "change", "reparam",
                        "replace", "quantize", "fuse", "merge", "convert", "download"});
}

Flow::Flow(const Module& module) : module_(module), values_(module.size()), deps_(1), functions_(module.functions().size()) {
  if (module.empty()) return;
  FindNoGradNames();
  Executor(*this).Run();
}

// Names of this file that stand for a switch: `ctx = torch.no_grad()`, and functions made of one.
void Flow::FindNoGradNames() {
  const Module& m = module_;
  if (!m.Has(kA_no_grad) && !m.Has(kA_inference_mode) && !m.Has(kA_set_grad_enabled)) return;
  auto has_switch = [&](NodeId outer) { return m.Contains(outer, {kA_no_grad, kA_inference_mode, kA_set_grad_enabled}); };
  for (NodeId id : m.Nodes(Kind::kAssignment)) {
    NodeId right = m.Child(id, Field::k_right), left = m.Child(id, Field::k_left);
    if (right && m.KindOf(right) != Kind::kLambda && m[right].last - right < 60 && has_switch(right)) {
      bool direct = false;  // the switch itself is the value, not something computed under it
      for (NodeId at = right; at < m[right].last; ++at) {
        direct |= m.KindOf(at) == Kind::kCall && SwitchesGradOff(at);
        direct |= m.KindOf(at) == Kind::kAttribute && (m.LastName(at) == kA_no_grad || m.LastName(at) == kA_inference_mode);
      }
      if (direct) nograd_names_[m.LastName(left)] = true;
    }
  }
  for (size_t f = 1; f < m.functions().size(); ++f) {
    const FunctionInfo& function = m.functions()[f];
    if (!has_switch(function.body)) continue;
    // A decorator or context manager returns or yields under the switch; a plain function only uses it inside.
    bool wraps = false;
    for (NodeId id = function.body; id < m[function.body].last; ++id) {
      if (m.KindOf(id) == Kind::kReturn && has_switch(id) && m[id].last - id < 40) wraps = true;
      if (m.KindOf(id) == Kind::kYield) {
        NodeId with = m.Ancestor(id, {Kind::kWith});
        wraps |= with && has_switch(m.First(with));
      }
    }
    if (wraps || HasHint(m.Name(function.name), {"no_grad", "nograd", "inference_mode"})) nograd_names_[function.name] = true;
  }
  for (NodeId call : m.Calls(kA___enter__)) {  // torch.no_grad().__enter__(), and no with around
    NodeId receiver = m.Receiver(call);
    bool statement = m.KindOf(m[call].parent) == Kind::kExpressionStatement;
    if (statement && receiver && m.KindOf(receiver) == Kind::kCall && SwitchesGradOff(receiver)) disabled_from_.push_back({call, m.FunctionOf(call)});
  }
  for (NodeId call : m.Calls(kA_set_grad_enabled)) {
    NodeId argument = m.Argument(call, 0);
    bool statement = m.KindOf(m[call].parent) == Kind::kExpressionStatement;
    if (statement && argument && m.KindOf(argument) == Kind::kFalse) disabled_from_.push_back({call, m.FunctionOf(call)});
  }
}

bool Flow::SwitchesGradOff(NodeId expression) const {
  const Module& m = module_;
  NodeId callee = m.KindOf(expression) == Kind::kCall ? m.Callee(expression) : expression;
  Atom name = m.LastName(callee);
  if (!name) return false;
  if (name == kA_no_grad || name == kA_inference_mode) return true;
  if (name == kA_set_grad_enabled) {  // only a literal True leaves it on for sure
    NodeId argument = m.Argument(expression, 0);
    return !argument || m.KindOf(argument) != Kind::kTrue;
  }
  auto found = nograd_names_.find(name);
  if (found != nograd_names_.end()) return found->second;
  return HasHint(m.Name(name), {"no_grad", "nograd", "inference_mode", "disable_grad", "eval_mode", "evaluating", "inference_context", "no_backprop"});
}

bool Flow::NoGradAt(NodeId id) const {
  const Module& m = module_;
  int function = m.FunctionOf(id);
  for (NodeId with = m.Ancestor(id, {Kind::kWith}); with; with = m.Ancestor(with, {Kind::kWith})) {
    NodeId clause = m.First(with);
    for (NodeId item = clause ? m.First(clause) : 0; item; item = m.Next(item)) {
      NodeId value = m.First(item);
      if (value && m.KindOf(value) == Kind::kAsPattern) value = m.First(value);
      if (!value) continue;
      if (SwitchesGradOff(value)) return true;
      if (m.KindOf(value) == Kind::kConditional && m.Contains(value, {kA_no_grad, kA_inference_mode})) return true;
    }
  }
  if (function > 0) {
    for (NodeId decorator : m.functions()[function].decorators) {
      if (SwitchesGradOff(decorator)) return true;
    }
    int around = m.functions()[function].parent;  // which asks the one around it
    if (around > 0 && NoGradAt(m.functions()[around].node)) return true;
  }
  for (auto [call, where] : disabled_from_) {
    if (call < id && (where == 0 || where == function)) return true;
  }
  return false;
}

int Flow::ResolveCall(NodeId call) const {
  const Module& m = module_;
  NodeId callee = m.Callee(call);
  if (!callee) return -1;
  if (m.KindOf(callee) == Kind::kIdentifier) {
    Atom name = m[callee].atom;
    for (int f = m.FunctionOf(call); f > 0; f = m.functions()[f].parent) {  // nested functions of this one
      for (size_t g = f + 1; g < m.functions().size() && m.functions()[g].node < m[m.functions()[f].node].last; ++g) {
        if (m.functions()[g].parent == f && m.functions()[g].name == name && m.functions()[g].owner < 0) return static_cast<int>(g);
      }
    }
    int found = m.FindFunction(name);
    if (found >= 0) return found;
    if (name == kA_self) return m.FindMethod(m.ClassOf(call), kA_forward);
    const Value& value = values_[callee];
    if (value.flags & kInstance) {
      int cls = m.FindClass(deps_[value.dep].name);
      int method = m.FindMethod(cls, kA___call__);
      return method >= 0 ? method : m.FindMethod(cls, kA_forward);
    }
    return -1;
  }
  if (m.KindOf(callee) != Kind::kAttribute) return -1;
  NodeId object = m.Receiver(call);
  Atom name = m.LastName(callee);
  if (m.KindOf(object) == Kind::kIdentifier && (m[object].atom == kA_self || m[object].atom == kA_cls)) {
    int method = m.FindMethod(m.ClassOf(call), name);
    if (method >= 0) return method;
  }
  const Value& self = values_[callee];
  if (self.flags & kInstance) {
    int cls = m.FindClass(deps_[self.dep].name);
    int method = m.FindMethod(cls, kA___call__);
    return method >= 0 ? method : m.FindMethod(cls, kA_forward);
  }
  if (Atom instance = InstanceClass(object)) return m.FindMethod(m.FindClass(instance), name);
  return -1;
}

Atom Flow::InstanceClass(NodeId id) const {
  const Module& m = module_;
  if (!id) return kNoAtom;
  if (m.KindOf(id) == Kind::kIdentifier && m.FindClass(m[id].atom) >= 0) return m[id].atom;
  const Value& value = values_[id];
  return value.flags & kInstance ? deps_[value.dep].name : static_cast<Atom>(kNoAtom);
}

}  // namespace lowtide::lint
