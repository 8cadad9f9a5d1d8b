#include <algorithm>
#include <unordered_set>

#include "lint/rules.h"

// LT104: a loop that differentiates and steps, and nobody clears the gradients.
namespace lowtide::lint {
namespace {

bool ClearsGradients(const Module& m, const Flow& flow, NodeId outer) {
  if (CallsAny(m, flow, outer, {kA_zero_grad, kA_clear_gradients, kA_clear_grad, kA_reset_grad, kA_zero_grads, kA_optimizer_zero_grad, kA_clear_grads, kA_zero_gradients})) return true;
  for (NodeId id = outer; id < m[outer].last; ++id) {
    if (m.KindOf(id) == Kind::kCall && HasHint(m.Name(m.CalleeName(id)), {"zero_grad", "zerograd", "clear_grad", "reset_grad"})) return true;
    if (m.KindOf(id) == Kind::kCall && (m.CalleeName(id) == kA_zero_ || m.CalleeName(id) == kA_fill_) && m.Contains(m.Callee(id), {kA_grad})) return true;
    if (m.KindOf(id) == Kind::kAssignment || m.KindOf(id) == Kind::kDelete) {
      NodeId left = m.KindOf(id) == Kind::kDelete ? m.First(id) : m.Child(id, Field::k_left);
      if (left && m.KindOf(left) == Kind::kAttribute && m.LastName(left) == kA_grad) return true;
    }
  }
  return false;
}

// Engines and wrappers that clear by themselves.
bool IsEngineBackward(const Module& m, NodeId backward) {
  NodeId receiver = m.Receiver(backward), argument = m.Argument(backward, 0);
  if (!receiver || !argument) return false;
  std::string_view name = m.Name(m.LastName(receiver));
  auto imported = m.imports().find(m.RootName(receiver));
  if (imported != m.imports().end() && imported->second.find("distributed.autograd") != std::string::npos) return true;  // gradients of a context
  if (HasHint(name, {"dist_autograd"})) return true;
  return HasHint(name, {"engine", "model", "optimizer", "strategy", "wrapper", "booster"}) && m.CalleeName(backward) == kA_backward;
}

struct Step {
  NodeId call;
  Atom optimizer;
};

}  // namespace

void CheckZeroGrad(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  const Flow& flow = scope.flow;
  if (!m.Has(kA_step) || !(m.Has(kA_backward) || m.Has(kA_manual_backward))) return;
  if (IsTestFile(m.path())) return;
  std::unordered_set<NodeId> reported_loops;
  for (NodeId backward : m.Calls({kA_backward, kA_manual_backward})) {
    if (!IsBackwardCall(m, backward) || IsEngineBackward(m, backward)) continue;
    int function = m.FunctionOf(backward);
    // The innermost loop that also steps.
    NodeId loop = m.EnclosingLoop(backward);
    std::vector<Step> steps;
    for (; loop; loop = m.EnclosingLoop(loop)) {
      NodeId body = m.Child(loop, Field::k_body);
      for (NodeId call : m.Calls(kA_step)) {
        if (m.Inside(call, body) && IsOptimizerStep(m, call)) {
          NodeId optimizer = m.Receiver(call);
          NodeId argument = m.Argument(call, 0);
          if (HasHint(m.Text(optimizer), {"scaler"}) && argument) optimizer = argument;
          steps.push_back({call, m.Path(optimizer)});
        }
      }
      if (!steps.empty()) break;
    }
    if (!loop) continue;
    NodeId outer = function > 0 ? m.functions()[function].body : m.Child(loop, Field::k_body);
    bool cleared = ClearsGradients(m, flow, outer);
    if (!cleared) {
      bool real = std::any_of(steps.begin(), steps.end(), [&](const Step& step) {
        return HasHint(m.Text(m.Receiver(step.call)), {"optim", "opt", "adam", "sgd", "scaler", "solver"});
      });
      if (!real || !reported_loops.insert(loop).second) continue;
      if (HasHint(m.Text(outer), {"lbfgs", "gradient_state"})) continue;
      // A few passes whose memory is read afterwards: a measurement, nothing is learned.
      NodeId items = m.KindOf(loop) == Kind::kFor ? m.Child(loop, Field::k_right) : 0;
      NodeId times = items && m.KindOf(items) == Kind::kCall && m.CalleeName(items) == kA_range ? m.Argument(items, 0) : 0;
      if (times && m.KindOf(times) == Kind::kInteger && HasHint(m.Text(outer), {"max_memory", "memory_allocated", "memory_reserved"})) continue;
      bool fresh = false;  // an optimizer, or model, made anew in each iteration
      for (const Step& step : steps) fresh |= step.optimizer && ResetInside(m, loop, step.optimizer);
      if (fresh) continue;
      Pending& pending = report.Add(backward, Severity::kError,
                                    {"gradients are never cleared: every " + Quoted(m, backward) + " adds to the gradients of all steps before",
               "梯度从未清零：每次 " + Quoted(m, backward) + " 都叠加到此前所有步的梯度上"},
                                    {"call optimizer.zero_grad() once per step, before backward()",
               "每一步在 backward() 之前调用一次 optimizer.zero_grad()"});
      if (function > 0) pending.Needs({Ask::kNotCleared, false, 255, 0, HashName(m.Name(m.functions()[function].name)), 0});
      else pending.Needs({Ask::kNotCleared, false, 255, 0, HashName(""), 0});
      NodeId target = BackwardTarget(m, backward);
      if (target) {
        NodeId optimizer = m.Receiver(steps.front().call);
        if (!HasHint(m.Text(optimizer), {"scaler"})) {
          pending.diagnostic.fix = InsertLineBefore(m, m.Statement(backward), std::string(m.Text(optimizer)) + ".zero_grad()", false,
                                                    {"clear the gradients before backward", "在 backward 之前清零梯度"});
        }
      }
      continue;
    }
    // Several optimizers, of which one is forgotten.
    std::unordered_set<Atom> clears;
    bool by_model = false;
    for (NodeId call : m.Calls(kA_zero_grad)) {
      if (m.FunctionOf(call) != function) continue;
      Atom path = m.Path(m.Receiver(call));
      bool optimizer = path && (HintsOf(m.Name(m.LastName(m.Receiver(call)))) & kHintOptimizer);
      if (optimizer) clears.insert(path);
      else by_model = true;
    }
    if (by_model || clears.empty() || !m.Inside(m.Calls(kA_zero_grad).front(), outer)) continue;
    for (const Step& step : steps) {
      if (!step.optimizer || clears.count(step.optimizer) || step.call < backward) continue;
      std::string_view name = m.Name(m.LastName(m.Receiver(step.call)));
      if (!(HintsOf(name) & kHintOptimizer)) continue;
      // The last backward before this step is the one that it applies.
      bool nearest = true;
      for (NodeId other : m.Calls({kA_backward, kA_manual_backward})) nearest &= !(other > backward && other < step.call);
      for (const Step& other : steps) nearest &= !(other.call > backward && other.call < step.call);
      if (!nearest || m.FunctionOf(step.call) != function) continue;
      bool alias = false;  // zero_grad through a list of optimizers
      for (NodeId call : m.Calls(kA_zero_grad)) {
        NodeId around = m.EnclosingLoop(call);
        alias |= around && m.KindOf(around) == Kind::kFor && m.HasPath(m.Child(around, Field::k_left), m.Path(m.Receiver(call)));
      }
      if (alias) continue;
      Pending& pending = report.Add(backward, Severity::kError,
                 {Quoted(m, m.Receiver(step.call)) + " steps but its gradients are never cleared, unlike the other optimizer's",
               Quoted(m, m.Receiver(step.call)) + " 执行更新，但它的梯度从未清零，而另一个优化器的梯度有清零"},
                 {"call " + std::string(m.Text(m.Receiver(step.call))) + ".zero_grad() before this backward()",
               "在这次 backward() 之前调用 " + std::string(m.Text(m.Receiver(step.call))) + ".zero_grad()"});
      if (function > 0) pending.Needs({Ask::kNotCleared, false, 255, 0, HashName(m.Name(m.functions()[function].name)), 0});
      break;
    }
  }
}

}  // namespace lowtide::lint
