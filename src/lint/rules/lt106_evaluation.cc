#include "lint/rules.h"

// LT106: evaluation or inference that builds a graph.
namespace lowtide::lint {
namespace {

class Rule106 {
 public:
  Rule106(const Scope& scope, Reporter& report) : scope_(scope), m_(scope.module), flow_(scope.flow), report_(report) {}

  void Run() {
    if (!UsesTorch()) return;
    for (size_t f = 1; f < m_.functions().size(); ++f) Judge(static_cast<int>(f));
  }

 private:
  bool UsesTorch() const {
    for (const auto& [name, target] : m_.imports()) {
      if (target.compare(0, 5, "torch") == 0) return true;
    }
    for (const auto& [name, target] : m_.imports()) {
      std::string_view root = std::string_view(target).substr(0, target.find('.'));
      if (root == "mxnet" || root == "tensorflow" || root == "keras" || root == "paddle" || root == "jax" || root == "mindspore") return false;
    }
    return m_.Has(kA_torch) || m_.Has(kA_backward) || m_.Has(kA_zero_grad);
  }

  NodeId EvalCall(NodeId body) const {
    for (NodeId call : m_.Calls(kA_eval)) {
      if (m_.Inside(call, body) && m_.Receiver(call) && m_.Argument(call, 0) == 0) return call;
    }
    return 0;
  }

  // A call that runs the model and leaves a graph behind.
  NodeId FirstForward(NodeId body, int function) const {
    for (NodeId call : m_.Nodes(Kind::kCall)) {
      if (!m_.Inside(call, body) || m_.FunctionOf(call) != function) continue;
      const Value& value = flow_.Of(call);
      if (!(value.flags & kGrad) || value.flags & kLossNamed || flow_.NoGradAt(call)) continue;
      Atom name = m_.CalleeName(call);
      if (!IsForward(call, name)) continue;
      return call;
    }
    return 0;
  }

  bool IsForward(NodeId call, Atom name) const {
    NodeId callee = m_.Callee(call);
    if (m_.IsTorch(callee) || IsBuilderName(m_.Name(name))) return false;
    NodeId list = m_.Child(call, Field::k_arguments);
    if (!list || !m_.First(list)) return false;  // nothing is evaluated: a constructor, a getter
    if (flow_.Of(callee).flags & kModel) return true;
    if (name == kA_self || name == kA_forward) return true;
    int in_file = flow_.ResolveCall(call);
    if (in_file <= 0) return false;
    const FunctionFlow& flow = flow_.Function(in_file);
    for (const Value& value : flow.returns) {
      if (value.flags & kGrad && !value.params) return true;
    }
    return false;
  }

  bool WantsGradients(NodeId body) const {
    return m_.Contains(body, {kA_requires_grad_, kA_requires_grad, kA_create_graph, kA_retain_graph, kA_saliency, kA_enable_grad, kA_jvp, kA_vjp,
                              kA_functional_call, kA_retain_grad}) ||
           m_.FindCall(body, {kA_grad});
  }

  void Judge(int f) {
    const FunctionInfo& info = m_.functions()[f];
    std::string_view name = m_.Name(info.name);
    if (!info.body || flow_.NoGradAt(info.body)) return;
    int cls = m_.ClassOf(info.body);
    NodeId eval_call = EvalCall(info.body);
    bool by_name = LooksLikeEvaluation(name);
    if (name.starts_with("test_") || IsTestFile(m_.path())) return;
    if (!eval_call && !by_name) return;
    if (IsFrameworkHook(m_, f)) return;
    NodeId forward = FirstForward(info.body, f);
    if (!forward || WantsGradients(info.body)) return;
    // Again with gradients, because it failed without; or called by an engine.
    if (InExcept(m_, forward) || OnlyHandedOver(info.name)) return;
    bool trains = CallsBackward(m_, flow_, info.body) || CallsStep(m_, flow_, info.body);
    if (trains) {
      if (!eval_call || !SharedLoop(eval_call, info.body, forward)) return;
    } else if (eval_call && !by_name) {
      if (LooksLikeTraining(name) && !m_.EnclosingLoop(forward)) return;
      if (!m_.EnclosingLoop(forward)) return;
      if (forward < eval_call) return;
      if (HasHint(name, {"export", "onnx", "convert", "trace", "quant", "benchmark", "profile", "explain", "attack", "cam", "grad", "visual", "init"})) return;
      if (FollowedByTrain(eval_call, forward)) return;
    } else if (!eval_call) {
      // By name alone only where it runs over data.
      NodeId loop = m_.EnclosingLoop(forward);
      if (!loop || m_.KindOf(loop) != Kind::kFor) return;
      if (cls >= 0 && m_.IsNnModule(cls)) return;
    }
    Report(f, forward, trains);
  }

  // Called only within lambdas: whoever is given those decides, an engine's evaluator mostly.
  bool OnlyHandedOver(Atom name) const {
    bool any = false;
    for (NodeId call : m_.Nodes(Kind::kCall)) {
      if (m_.CalleeName(call) != name) continue;
      NodeId up = m_[call].parent;
      while (up && m_.KindOf(up) != Kind::kLambda && m_.KindOf(up) != Kind::kFunction) up = m_[up].parent;
      if (!up || m_.KindOf(up) != Kind::kLambda) return false;
      any = true;
    }
    return any;
  }

  // model.train() between eval() and the forward.
  bool FollowedByTrain(NodeId eval_call, NodeId forward) const {
    for (NodeId call : m_.Calls(kA_train)) {
      if (call > eval_call && call < forward && m_.Path(m_.Receiver(call)) == m_.Path(m_.Receiver(eval_call))) return true;
    }
    return false;
  }

  // `if train: model.train() else: model.eval()`, with backward under the same flag.
  bool SharedLoop(NodeId eval_call, NodeId body, NodeId forward) const {
    NodeId statement = m_.Ancestor(eval_call, {Kind::kIf});
    if (!statement || m_.EnclosingLoop(eval_call) || m_.Inside(forward, statement)) return false;
    NodeId train = m_.FindCall(statement, {kA_train}), body_of = m_.Child(statement, Field::k_consequence);
    if (!train || !body_of || m_.Inside(train, body_of) == m_.Inside(eval_call, body_of)) return false;
    NodeId test = m_.Child(statement, Field::k_condition);
    std::vector<Atom> flags;
    for (NodeId id = test; id < m_[test].last; ++id) {
      if (m_.KindOf(id) == Kind::kIdentifier && m_[id].atom != kA_self) flags.push_back(m_[id].atom);
    }
    for (NodeId guard = GuardAround(m_, forward, body); guard; guard = GuardAround(m_, guard, body)) {  // that one only trains
      NodeId condition = m_.Child(guard, Field::k_condition);
      for (Atom flag : flags) {
        if (condition && m_.Contains(condition, {flag})) return false;
      }
    }
    for (NodeId backward : m_.Calls({kA_backward, kA_manual_backward})) {
      if (!m_.Inside(backward, body)) continue;
      bool guarded = false;
      for (NodeId guard = GuardAround(m_, backward, body); guard; guard = GuardAround(m_, guard, body)) {
        NodeId condition = m_.Child(guard, Field::k_condition);
        for (Atom flag : flags) guarded |= condition && m_.Contains(condition, {flag});
      }
      if (!guarded) return false;
    }
    return true;
  }

  void Report(int f, NodeId forward, bool shared) {
    const FunctionInfo& info = m_.functions()[f];
    std::string name(m_.Name(info.name));
    std::string message = shared ? "the same loop trains and evaluates, and " + Quoted(m_, forward) + " builds a graph in both"
                                 : "`" + name + "` evaluates with autograd on: " + Quoted(m_, forward) + " records a graph that nobody differentiates";
    std::string chinese = shared ? "同一个循环既训练又评估，" + Quoted(m_, forward) + " 在两种情况下都会建立计算图"
                                 : "`" + name + "` 在评估时没有关闭自动求导：" + Quoted(m_, forward) + " 记录了无人求导的计算图";
    Pending& pending = report_.Add(forward, Severity::kWarning, {std::move(message), std::move(chinese)},
                               {shared ? "run it under torch.set_grad_enabled(training)"
                                       : "put @torch.no_grad() on `" + name + "` (eval() changes dropout and batch norm, not autograd)",
                                shared ? "在 torch.set_grad_enabled(training) 下运行"
                                       : "给 `" + name + "` 加上 @torch.no_grad()（eval() 只影响 dropout 和批归一化，不影响自动求导）"});
    pending.Needs({Ask::kCallerHasGrad, false, 255, 0, HashName(name), 0});
    for (NodeId decorator : info.decorators) {
      NodeId called = m_.KindOf(decorator) == Kind::kCall ? m_.Callee(decorator) : decorator;
      if (m_.LastName(called)) pending.Needs({Ask::kDecoratorKeepsGrad, false, 255, 0, HashName(m_.Name(m_.LastName(called))), 0});
    }
    const Value& value = flow_.Of(forward);
    if (value.dep) NeedAttached(scope_, value, pending);
    auto torch = m_.imports().find(kA_torch);
    if (!shared && torch != m_.imports().end()) {
      NodeId outer = m_.KindOf(m_[info.node].parent) == Kind::kDecorated ? m_[info.node].parent : info.node;
      NodeId at = info.decorators.empty() ? outer : info.node;
      pending.diagnostic.fix = InsertLineBefore(m_, at, "@torch.no_grad()", true, {"decorate with @torch.no_grad()", "加上 @torch.no_grad() 装饰器"});
    }
  }

  const Scope& scope_;
  const Module& m_;
  const Flow& flow_;
  Reporter& report_;
};

}  // namespace

void CheckEvaluation(const Scope& scope, Reporter& report) { Rule106(scope, report).Run(); }

}  // namespace lowtide::lint
