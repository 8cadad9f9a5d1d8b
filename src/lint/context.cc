#include "lint/context.h"

#include <algorithm>
#include <cctype>
#include <unordered_set>

namespace lowtide::lint {

bool InExcept(const Module& m, NodeId id) { return m.Ancestor(id, {Kind::kExcept, Kind::kExceptGroup}) != 0; }

NodeId GuardAround(const Module& m, NodeId id, NodeId stop) {
  for (NodeId up = id; up != 0 && up != stop; up = m[up].parent) {
    NodeId parent = m[up].parent;
    Kind kind = m.KindOf(parent);
    if ((kind == Kind::kIf || kind == Kind::kElif) && m[up].field == Field::k_consequence) return parent;
    if (kind == Kind::kConditional && up == m.First(parent)) return parent;
    if (kind == Kind::kFunction || kind == Kind::kClass) return 0;
  }
  return 0;
}

namespace {

NodeId TestOf(const Module& m, NodeId guard) {
  if (m.KindOf(guard) != Kind::kConditional) return m.Child(guard, Field::k_condition);
  NodeId first = m.First(guard);
  return first ? m.Next(first) : 0;
}

bool HasModulo(const Module& m, NodeId test) {
  for (NodeId id = test; id < m[test].last; ++id) {
    if (m.KindOf(id) == Kind::kBinary && m.Text(id).find('%') != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

bool IsPeriodicTest(const Module& m, NodeId test) {
  if (!test) return false;
  if (HasModulo(m, test)) return true;
  for (NodeId id = test; id < m[test].last; ++id) {
    if (m.KindOf(id) != Kind::kIdentifier) continue;
    std::string_view name = m.Name(m[id].atom);
    if (HasHint(name, {"interval", "freq", "every", "period", "should_", "is_last", "last_", "is_time", "need_", "divisible", "is_log",
                       "log_now", "do_log", "profil", "debug", "verbose", "sync_gradients", "is_update", "update_step", "timer", "due", "synchron"})) {
      return true;
    }
  }
  if (m.KindOf(test) == Kind::kBoolOp && m.Text(test).find(" or ") == std::string_view::npos) {
    for (NodeId part : m.Children(test)) {
      if (IsPeriodicTest(m, part)) return true;
    }
  }
  if (m.KindOf(test) == Kind::kCompare) {  // `i == 0`, `step in marks`, `i + 1 == len(loader)`: some iterations only
    std::string_view text = m.Text(test);
    NodeId left = m.First(test);
    bool counter = left && (m.KindOf(left) == Kind::kIdentifier || m.KindOf(left) == Kind::kBinary || m.KindOf(left) == Kind::kAttribute) &&
                   HasHint(m.Text(left), {"step", "iter", "batch", "idx", "epoch", "i"});
    if (counter && (text.find("==") != std::string_view::npos || text.find(" in ") != std::string_view::npos)) return true;
    if (m.KindOf(left) == Kind::kBinary && text.find('-') != std::string_view::npos && text.find('>') != std::string_view::npos) return true;
  }
  return false;
}

bool Periodic(const Module& m, NodeId id, NodeId loop) {
  for (NodeId guard = GuardAround(m, id, loop); guard; guard = GuardAround(m, guard, loop)) {
    if (IsPeriodicTest(m, TestOf(m, guard))) return true;
  }
  // `if step % n: continue` before it
  for (NodeId statement = m.Statement(id); statement; statement = m.Statement(m[statement].parent)) {
    NodeId block = m[statement].parent;
    for (NodeId before = m.First(block); before && before < statement; before = m.Next(before)) {
      if (m.KindOf(before) != Kind::kIf) continue;
      NodeId body = m.Child(before, Field::k_consequence);
      bool leaves = body && m.First(body) && m.KindOf(m.First(body)) == Kind::kContinue;
      if (leaves && IsPeriodicTest(m, m.Child(before, Field::k_condition))) return true;
    }
    if (block == 0 || !m.Inside(block, loop ? loop : 0) || m.KindOf(m[block].parent) == Kind::kFunction || m[block].parent == loop) break;
  }
  return false;
}

bool IsRankName(std::string_view name) {
  return HasHint(name, {"rank", "is_main", "main_process", "is_master", "master_process", "is_chief", "is_primary", "global_zero",
                        "rank_zero", "is_root", "gpu_id", "is_head", "on_main", "master_only", "is_first_worker", "primary",
                        "process_index", "is_logging_process", "is_writer", "master"});
}

bool IsRankTest(const Module& m, NodeId test) {
  if (!test) return false;
  for (NodeId id = test; id < m[test].last; ++id) {
    if (m.KindOf(id) == Kind::kIdentifier && IsRankName(m.Name(m[id].atom))) return true;
    if (m.KindOf(id) == Kind::kString && HasHint(m.Text(id), {"rank"})) return true;
  }
  return false;
}

bool PlainByTest(const Module& m, NodeId expression) {
  std::string_view text = m.Text(expression);
  for (NodeId statement = m.Ancestor(expression, {Kind::kIf}); statement; statement = m.Ancestor(statement, {Kind::kIf})) {
    NodeId test = m.Child(statement, Field::k_condition), body = m.Child(statement, Field::k_consequence);
    if (!test || m.KindOf(test) != Kind::kCall || m.CalleeName(test) != kA_isinstance) continue;
    NodeId tested = m.Argument(test, 0), type = m.Argument(test, 1);
    if (!tested || !type || m.Text(tested) != text) continue;
    bool tensor = HasHint(m.Text(type), {"Tensor"});
    bool inside = body && m.Inside(expression, body);
    if (inside != tensor) return true;
  }
  return false;
}

bool RankGuarded(const Module& m, NodeId id) {
  for (NodeId guard = GuardAround(m, id, 0); guard; guard = GuardAround(m, guard, 0)) {
    if (IsRankTest(m, TestOf(m, guard))) return true;
  }
  // else-branches of a rank test
  for (NodeId branch = m.Ancestor(id, {Kind::kElse, Kind::kElif}); branch; branch = m.Ancestor(branch, {Kind::kElse, Kind::kElif})) {
    if (m.KindOf(m[branch].parent) == Kind::kIf && IsRankTest(m, m.Child(m[branch].parent, Field::k_condition))) return true;
  }
  for (int f = m.FunctionOf(id); f > 0; f = m.functions()[f].parent) {
    const FunctionInfo& function = m.functions()[f];
    for (NodeId decorator : function.decorators) {
      if (IsRankTest(m, decorator) || HasHint(m.Text(decorator), {"master", "main_process", "rank"})) return true;
    }
    if (IsRankName(m.Name(function.name))) return true;
    for (NodeId before = m.First(function.body); before && before < id; before = m.Next(before)) {
      if (m.KindOf(before) != Kind::kIf || !IsRankTest(m, m.Child(before, Field::k_condition))) continue;
      NodeId body = m.Child(before, Field::k_consequence);
      for (NodeId inner = body ? m.First(body) : 0; inner; inner = m.Next(inner)) {
        if (m.KindOf(inner) == Kind::kReturn || m.KindOf(inner) == Kind::kRaise) return true;
      }
    }
  }
  return false;
}

bool IsBackwardCall(const Module& m, NodeId call) {
  NodeId callee = m.Callee(call);
  if (!callee || m.KindOf(callee) != Kind::kAttribute) return false;
  Atom name = m.LastName(callee);
  if (name == kA_manual_backward) return true;
  if (name != kA_backward) return false;
  NodeId receiver = m.Receiver(call);
  if (m.KindOf(receiver) == Kind::kCall && m.CalleeName(receiver) == kA_super) return false;
  Atom last = m.LastName(receiver);
  if (last == kA_autograd) return true;
  // ctx-style calls: Function.backward(ctx, grad), self.backward(grad, ...)
  NodeId first = m.Argument(call, 0);
  if (first && m.KindOf(first) == Kind::kIdentifier && m[first].atom == kA_ctx) return false;
  return true;
}

NodeId BackwardTarget(const Module& m, NodeId call) {
  NodeId receiver = m.Receiver(call);
  Atom name = m.CalleeName(call);
  NodeId first = m.Argument(call, 0);
  if (name == kA_manual_backward) return first;
  if (!receiver) return first;
  if (m.KindOf(receiver) == Kind::kCall && m.CalleeName(receiver) == kA_scale) return m.Argument(receiver, 0);
  if (m.LastName(receiver) == kA_autograd) return first;
  if (first && (HintsOf(m.Text(first)) & kHintLoss) && m.KindOf(first) != Kind::kKeywordArgument) return first;
  return receiver;
}

bool IsOptimizerStep(const Module& m, NodeId call) {
  if (m.CalleeName(call) != kA_step) return false;
  NodeId receiver = m.Receiver(call);
  if (!receiver) return false;
  std::string_view text = m.Text(receiver);
  std::string_view name = m.Name(m.LastName(receiver));
  if (HasHint(name, {"sched", "env", "prof", "lr_", "timer", "warmup", "ema", "world"})) return false;
  return HasHint(text, {"optim", "opt", "scaler", "solver"}) || m.Argument(call, 0) == 0;
}

bool CallsAny(const Module& m, const Flow& flow, NodeId outer, std::initializer_list<Atom> names, int depth) {
  for (NodeId id = outer; id < m[outer].last; ++id) {
    if (m.KindOf(id) != Kind::kCall) continue;
    Atom name = m.CalleeName(id);
    if (name && std::find(names.begin(), names.end(), name) != names.end()) return true;
    if (depth >= 3) continue;
    int function = flow.ResolveCall(id);
    if (function > 0 && !m.Inside(m.functions()[function].node, outer) && !m.Inside(outer, m.functions()[function].node) &&
        CallsAny(m, flow, m.functions()[function].body, names, depth + 1)) {
      return true;
    }
  }
  return false;
}

bool CallsBackward(const Module& m, const Flow& flow, NodeId outer, int depth) {
  if (!m.Has(kA_backward) && !m.Has(kA_manual_backward)) return false;
  return CallsAny(m, flow, outer, {kA_backward, kA_manual_backward}, depth);
}

bool CallsStep(const Module& m, const Flow& flow, NodeId outer, int depth) {
  if (!m.Has(kA_step)) return false;
  for (NodeId id = outer; id < m[outer].last; ++id) {
    if (m.KindOf(id) != Kind::kCall) continue;
    if (IsOptimizerStep(m, id) && HasHint(m.Text(m.Receiver(id)), {"optim", "opt", "scaler", "solver"})) return true;
    if (depth >= 3) continue;
    int function = flow.ResolveCall(id);
    if (function > 0 && !m.Inside(m.functions()[function].node, outer) && !m.Inside(outer, m.functions()[function].node) &&
        CallsStep(m, flow, m.functions()[function].body, depth + 1)) {
      return true;
    }
  }
  return false;
}

bool IsTrainingLoop(const Module& m, const Flow& flow, NodeId loop) {
  NodeId body = m.Child(loop, Field::k_body);
  return body && (CallsBackward(m, flow, body) || CallsStep(m, flow, body));
}

NodeId TrainingLoop(const Module& m, const Flow& flow, NodeId id) {
  for (NodeId loop = m.EnclosingLoop(id); loop; loop = m.EnclosingLoop(loop)) {
    if (IsTrainingLoop(m, flow, loop)) return loop;
  }
  return 0;
}

bool IsEpochLoop(const Module& m, NodeId loop) {
  if (m.KindOf(loop) == Kind::kFor) {
    NodeId left = m.Child(loop, Field::k_left);
    return left && m.KindOf(left) == Kind::kIdentifier && (HasHint(m.Text(left), {"epoch"}) || m.Text(left) == "ep" || m.Text(left) == "e");
  }
  NodeId test = m.Child(loop, Field::k_condition);
  return test && HasHint(m.Text(test), {"epoch"});
}

std::vector<Atom> PathsIntoBackward(const Module& m, const Flow& flow, int function) {
  NodeId body = function == 0 ? 0 : m.functions()[function].body;
  std::unordered_set<Atom> wanted;
  auto add_all = [&](NodeId outer) {
    for (NodeId id = outer; id < m[outer].last; ++id) {
      Kind kind = m.KindOf(id);
      if (kind == Kind::kIdentifier || kind == Kind::kAttribute || kind == Kind::kSubscript) {
        if (Atom path = m.Path(id)) wanted.insert(path);
      }
      if (kind == Kind::kSubscript) {
        if (Atom path = m.Path(m.Child(id, Field::k_value))) wanted.insert(path);
      }
    }
  };
  for (NodeId id = body; id < m[body].last; ++id) {
    if (m.KindOf(id) != Kind::kCall) continue;
    Atom name = m.CalleeName(id);
    if ((name == kA_backward || name == kA_manual_backward) && IsBackwardCall(m, id)) {
      if (NodeId target = BackwardTarget(m, id)) add_all(target);
    } else if (name == kA_grad && m.Argument(id, 0)) {
      add_all(m.Argument(id, 0));
    } else if (int callee = flow.ResolveCall(id); callee > 0 && m.Has(kA_backward) && m.Contains(m.functions()[callee].node, {kA_backward, kA_manual_backward}) && !m.Inside(id, m.functions()[callee].node)) {
      // handed to a function that differentiates
      if (NodeId list = m.Child(id, Field::k_arguments)) add_all(list);
    } else if (name && HasHint(m.Name(name), {"backward", "backprop", "optimize", "update_param"})) {
      if (NodeId list = m.Child(id, Field::k_arguments)) add_all(list);
    }
  }
  wanted.erase(kA_self);
  for (size_t before = 0, rounds = 0; before != wanted.size() && rounds < 12; ++rounds) {
    before = wanted.size();
    for (NodeId id = body; id < m[body].last; ++id) {
      Kind kind = m.KindOf(id);
      if (kind == Kind::kAssignment || kind == Kind::kAugmentedAssignment) {
        NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
        if (!left || !right) continue;
        bool into = false;
        for (NodeId at = left; at < m[left].last; ++at) {
          Kind k = m.KindOf(at);
          if (k == Kind::kIdentifier || k == Kind::kAttribute || k == Kind::kSubscript) {
            Atom path = m.Path(at);
            into |= path && path != kA_self && wanted.count(path);
          }
        }
        if (!into) continue;
        // Only what carries a graph flows on.
        for (NodeId at = right; at < m[right].last; ++at) {
          Kind k = m.KindOf(at);
          if (k != Kind::kIdentifier && k != Kind::kAttribute && k != Kind::kSubscript) continue;
          Atom path = m.Path(at);
          if (path && !(flow.Of(at).flags & kNumber)) wanted.insert(path);
          if (k == Kind::kSubscript) {
            if (Atom base = m.Path(m.Child(at, Field::k_value))) wanted.insert(base);
          }
        }
      } else if (kind == Kind::kCall && (m.CalleeName(id) == kA_append || m.CalleeName(id) == kA_extend)) {
        Atom path = m.Path(m.Receiver(id));
        if (path && wanted.count(path) && m.Argument(id, 0)) add_all(m.Argument(id, 0));
      }
    }
    wanted.erase(kA_self);
  }
  return {wanted.begin(), wanted.end()};
}

bool LooksLikeEvaluation(std::string_view name) {
  while (!name.empty() && name.front() == '_') name.remove_prefix(1);
  auto starts = [&](std::string_view head) {
    return name.size() >= head.size() && HasHint(name.substr(0, head.size()), {head}) &&
           (name.size() == head.size() || !std::islower(static_cast<unsigned char>(name[head.size()])));
  };
  if (HasHint(name, {"train", "loss", "transform", "config", "dataset", "loader", "forward"})) return false;
  return starts("eval") || starts("evaluate") || starts("evaluation") || starts("validate") || starts("validation") || starts("valid") ||
         starts("val") || starts("test") || starts("inference") || starts("infer") || starts("predict") ||
         HasHint(name, {"_evaluate", "_validate", "_validation", "_eval", "_inference", "_val_", "_valid_"}) || name.ends_with("_val") ||
         name.ends_with("_test") || name.ends_with("_valid");
}

bool LooksLikeTraining(std::string_view name) { return HasHint(name, {"train", "fit"}); }

}  // namespace lowtide::lint
