#include "lint/rules.h"

// LT105: gradients summed over several backward calls before one step, and the loss is not divided by their number.
namespace lowtide::lint {
namespace {

bool AccumulationName(std::string_view text) {
  return HasHint(text, {"accum", "grad_acc", "gradient_acc", "iter_size", "update_freq", "virtual_batch", "micro", "acc_step", "grad_step", "ga_steps", "subdivision", "step_every"});
}

// `if (i + 1) % accumulation == 0: optimizer.step()` in the same loop as `backward`.
// A guard that holds the backward as well lets both through, or neither.
NodeId ModuloGuardedStep(const Module& m, NodeId loop, NodeId backward) {
  for (NodeId call : m.Calls(kA_step)) {
    if (!m.Inside(call, loop) || m.EnclosingLoop(call) != loop || !IsOptimizerStep(m, call)) continue;
    for (NodeId guard = GuardAround(m, call, loop); guard; guard = GuardAround(m, guard, loop)) {
      NodeId test = m.Child(guard, Field::k_condition);
      if (!test || m.Inside(backward, guard)) continue;
      for (NodeId id = test; id < m[test].last; ++id) {
        if (m.KindOf(id) == Kind::kBinary && m.Text(id).find('%') != std::string_view::npos) {
          NodeId modulus = m.Child(id, Field::k_right);
          if (modulus && (AccumulationName(m.Text(modulus)) || AccumulationName(m.Text(test)))) return modulus;
        }
      }
    }
  }
  return 0;
}

bool Divides(const Module& m, NodeId expression) {
  for (NodeId id = expression; id < m[expression].last; ++id) {
    if (m.KindOf(id) == Kind::kCall && (m.CalleeName(id) == kA_div || m.CalleeName(id) == kA_div_ || m.CalleeName(id) == kA_true_divide)) return true;
    if (m.KindOf(id) != Kind::kBinary) continue;
    NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
    if (!left || !right) continue;
    std::string_view op = m.text().substr(m[left].end, m[right].start - m[left].end);
    if (op.find('/') != op.npos) return true;
    if (op.find('*') != op.npos && (HasHint(m.Text(right), {"scale", "inv", "weight"}) || HasHint(m.Text(left), {"scale", "inv"}))) return true;
  }
  return false;
}

// `path = ...`, also within a tuple of targets.
bool Sets(const Module& m, NodeId target, Atom path) {
  if (m.Path(target) == path) return true;
  if (m.KindOf(target) != Kind::kPatternList && m.KindOf(target) != Kind::kTuplePattern) return false;
  for (NodeId part : m.Children(target)) {
    if (Sets(m, part, path)) return true;
  }
  return false;
}

// The loss, or something it is computed from in this loop, is divided.
bool LossDivided(const Module& m, const Flow& flow, NodeId outer, NodeId target, int depth = 0) {
  if (Divides(m, target) || AccumulationName(m.Text(target))) return true;
  for (NodeId at = target; at < m[target].last; ++at) {
    Atom path = m.KindOf(at) == Kind::kIdentifier || m.KindOf(at) == Kind::kAttribute || m.KindOf(at) == Kind::kSubscript ? m.Path(at) : static_cast<Atom>(kNoAtom);
    if (!path || path == kA_self || (at != target && flow.Of(at).flags & (kModel | kData | kLossFn))) continue;
    for (NodeId id : m.Nodes(Kind::kAugmentedAssignment)) {
      NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
      if (!m.Inside(id, outer) || !left || !right || m.Path(left) != path) continue;
      std::string_view op = m.text().substr(m[left].end, m[right].start - m[left].end);
      if (op.find('/') != op.npos || (op.find("*=") != op.npos && HasHint(m.Text(right), {"/", "scale", "accum"}))) return true;
      if (depth < 3 && LossDivided(m, flow, outer, right, depth + 1)) return true;
    }
    for (NodeId id : m.Nodes(Kind::kWith)) {  // with amp.scale_loss(loss, optimizer) as scaled_loss
      NodeId clause = m.First(id);
      if (!m.Inside(id, outer) || !clause || depth >= 3) continue;
      for (NodeId part = clause; part < m[clause].last; ++part) {
        if (m.KindOf(part) != Kind::kAsTarget || m.Path(m.First(part)) != path) continue;
        NodeId made = m.First(m[part].parent);
        if (made && LossDivided(m, flow, outer, made, depth + 1)) return true;
      }
    }
    for (NodeId id : m.Nodes(Kind::kAssignment)) {
      NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
      if (!left || !right || !m.Inside(id, outer) || !Sets(m, left, path) || m.Inside(target, id)) continue;
      if (Divides(m, right) || AccumulationName(m.Text(right))) return true;
      if (depth < 3 && LossDivided(m, flow, outer, right, depth + 1)) return true;
      // a function of this file that divides what it returns
      for (NodeId call = right; call < m[right].last; ++call) {
        if (m.KindOf(call) != Kind::kCall) continue;
        for (size_t f = 1; f < m.functions().size(); ++f) {  // a method that subclasses of this file override
          const FunctionInfo& info = m.functions()[f];
          if (info.owner >= 0 && info.body && info.name == m.CalleeName(call) && Divides(m, info.body) && AccumulationName(m.Text(info.body))) return true;
        }
        int callee = flow.ResolveCall(call);
        if (callee > 0 && depth < 2) {
          const FunctionInfo& info = m.functions()[callee];
          if (AccumulationName(m.Text(info.body))) return true;
        }
      }
    }
  }
  return false;
}

}  // namespace

void CheckUndivided(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (!m.Has(kA_step) || IsTestFile(m.path())) return;
  for (NodeId backward : m.Calls({kA_backward, kA_manual_backward})) {
    if (!IsBackwardCall(m, backward)) continue;
    NodeId loop = m.EnclosingLoop(backward), target = BackwardTarget(m, backward);
    if (!loop || !target) continue;
    NodeId outer = m.Child(loop, Field::k_body);
    std::string by;
    if (NodeId modulus = ModuloGuardedStep(m, loop, backward)) {
      by = std::string(m.Text(modulus));
    } else if (m.KindOf(loop) == Kind::kFor) {  // for _ in range(accumulation_steps): ... backward(); the step comes after
      NodeId items = m.Child(loop, Field::k_right);
      bool counts = items && m.KindOf(items) == Kind::kCall && (m.CalleeName(items) == kA_range || m.CalleeName(items) == kA_enumerate || m.CalleeName(items) == kA_tqdm) && AccumulationName(m.Text(items));
      if (counts && !CallsStep(m, scope.flow, outer)) {
        by = std::string(m.Text(m.Argument(items, 0) ? m.Argument(items, 0) : items));
      }
    }
    if (by.empty()) continue;
    NodeId receiver = m.Receiver(backward);
    std::string_view engine = receiver ? m.Name(m.LastName(receiver)) : std::string_view();
    // Accelerate divides inside backward when its accumulate() is used; engines do as well.
    if (HasHint(engine, {"engine", "strategy", "booster"})) continue;
    if (HasHint(engine, {"accelerator"}) && m.Contains(0, {kA_accumulate, kA_gradient_accumulation_steps})) continue;
    int function = m.FunctionOf(backward);
    NodeId scope_node = function > 0 ? m.functions()[function].body : outer;
    if (LossDivided(m, scope.flow, scope_node, target)) continue;
    // Averaged another way: gradients multiplied, or parameters' .grad divided.
    std::string_view body = m.Text(scope_node);
    if (HasHint(body, {"multiply_grads", "grad.div", "grad /=", "grad.mul", "scale_grad", "loss_scale", "normalize_grad", "reduction='sum'"})) continue;
    report.Add(backward, Severity::kWarning,
               {"gradients are summed over " + by + " backward passes, but " + Quoted(m, target) +
                   " is not divided by it: the step is that many times too large",
               "梯度由 " + by + " 次反向传播累加，但 " + Quoted(m, target) + " 没有除以它：步长被放大了同样的倍数"},
               {"divide before backward: (" + std::string(m.Text(target)) + " / " + by + ").backward()",
               "在 backward 之前相除：(" + std::string(m.Text(target)) + " / " + by + ").backward()"});
  }
}

}  // namespace lowtide::lint
