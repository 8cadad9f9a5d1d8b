#include "lint/rules.h"

// LT106: evaluation or inference that builds a graph.
namespace lowtide::lint {
namespace {

class Rule106 {
 public:
  Rule106(const Scope& scope, Reporter& report) : scope_(scope), m_(scope.module), flow_(scope.flow), report_(report) {}

  void Run() {
    if (!UsesTorch()) return;
    // A setting "no_grad" that the module reads.
    if (m_.text().find("'no_grad'") != std::string_view::npos || m_.text().find("\"no_grad\"") != std::string_view::npos) return;
    for (size_t f = 1; f < m_.functions().size(); ++f) Judge(static_cast<int>(f));
  }

 private:
  enum class Where { kFunction, kSharedLoop, kAfterTraining };

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
      if (!IsForward(call, name) || MakesModel(call, body)) continue;
      // Run once and its result dropped: the graph goes at once.
      if (m_.KindOf(m_[call].parent) == Kind::kExpressionStatement && !m_.EnclosingLoop(call)) continue;
      return call;
    }
    return 0;
  }

  bool IsForward(NodeId call, Atom name) const {
    NodeId callee = m_.Callee(call);
    if (m_.IsTorch(callee) || IsBuilderName(m_.Name(name))) return false;
    NodeId list = m_.Child(call, Field::k_arguments);
    if (!list || !m_.First(list)) return PutInEvaluation(callee);  // else nothing is evaluated: a constructor, a getter
    if (flow_.Of(callee).flags & kModel) return HasParameters(name == kA_forward ? m_.Receiver(call) : callee);
    if (name == kA_self || name == kA_forward) return true;
    int in_file = flow_.ResolveCall(call);
    if (in_file <= 0) return false;
    const FunctionFlow& flow = flow_.Function(in_file);
    for (const Value& value : flow.returns) {
      if (value.flags & kGrad && !value.params) return true;
    }
    return false;
  }

  // model.eval() stands somewhere before: `model()` is a forward of a model that holds its data.
  bool PutInEvaluation(NodeId callee) const {
    if (!(flow_.Of(callee).flags & kModel)) return false;
    for (NodeId call : m_.Calls(kA_eval)) {
      if (call < callee && m_.FunctionOf(call) == m_.FunctionOf(callee) && m_.Receiver(call) && m_.Path(m_.Receiver(call)) == m_.Path(callee)) return true;
    }
    return false;
  }

  // `actor = Model[0](envs).to(device); actor.eval()`: the call makes the model.
  bool MakesModel(NodeId call, NodeId body) const {
    NodeId up = m_[call].parent;
    while (m_.KindOf(up) == Kind::kAttribute || (m_.KindOf(up) == Kind::kCall && m_[up].parent && m_.Receiver(up))) up = m_[up].parent;
    NodeId left = m_.KindOf(up) == Kind::kAssignment ? m_.Child(up, Field::k_left) : 0;
    Atom path = left ? m_.Path(left) : static_cast<Atom>(kNoAtom);
    if (!path) return false;
    if (flow_.Of(m_.Argument(call, 0)).flags & kModel && m_.Path(m_.Argument(call, 0)) == path) return true;  // model = dispatch(model)
    for (NodeId use : m_.Calls({kA_eval, kA_train, kA_load_state_dict, kA_parameters, kA_state_dict, kA_zero_grad})) {
      if (use > call && m_.Inside(use, body) && m_.Path(m_.Receiver(use)) == path) return true;
    }
    return false;
  }

  // `model` and `net` are modules by their names; a policy, a decoder or a detector may be any object, and has
  // parameters where it is used like a module somewhere in this file.
  bool HasParameters(NodeId object) const {
    Atom last = m_.LastName(object);
    if (!last || HasHint(m_.Name(last), {"model", "net"})) return true;
    if (int cls = m_.FindClass(flow_.InstanceClass(object)); cls >= 0) return m_.IsNnModule(cls);
    if (m_.RootName(object) == kA_self && m_.IsNnModule(m_.ClassOf(object))) return true;
    for (NodeId use : m_.Calls({kA_eval, kA_train, kA_parameters, kA_named_parameters, kA_load_state_dict, kA_state_dict, kA_zero_grad,
                                kA_requires_grad_, kA_cuda, kA_to, kA_half, kA_modules, kA_named_modules})) {
      if (m_.LastName(m_.Receiver(use)) == last) return true;
    }
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {  // policy = Policy(...).to(device)
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (left && right && m_.LastName(left) == last && m_.FindCall(right, {kA_to, kA_cuda, kA_eval, kA_DataParallel, kA_DistributedDataParallel, kA_DDP})) return true;
    }
    return false;
  }

  // A part of forward(): whoever calls the module decides.
  bool CalledByForwardOnly(const FunctionInfo& info) const {
    if (info.owner < 0 || m_.FindMethod(info.owner, kA_forward) < 0) return false;
    bool any = false;
    for (NodeId call : m_.Nodes(Kind::kCall)) {
      if (m_.CalleeName(call) != info.name) continue;
      Atom caller = m_.functions()[m_.FunctionOf(call)].name;
      if (caller != kA_forward && caller != kA___call__) return false;
      any = true;
    }
    return any;
  }

  // Its result goes to a function of this file that differentiates.
  bool DifferentiatedByCaller(int f) const {
    bool returned = false;
    for (const Value& value : flow_.Function(f).returns) returned |= value.attached();
    if (!returned) return false;
    for (NodeId call : m_.Nodes(Kind::kCall)) {
      if (m_.CalleeName(call) != m_.functions()[f].name) continue;
      int caller = m_.FunctionOf(call);
      if (caller > 0 && m_.FindCall(m_.functions()[caller].body, {kA_grad, kA_backward, kA_jacobian, kA_hessian})) return true;
    }
    return false;
  }

  // Another forward of the function stands under no_grad: its author chose what runs with autograd on.
  bool ForwardsUnderSwitch(NodeId body) const {
    for (NodeId call : m_.Nodes(Kind::kCall)) {
      if (m_.Inside(call, body) && flow_.Of(m_.Callee(call)).flags & kModel && !m_.IsTorch(m_.Callee(call)) && flow_.NoGradAt(call)) return true;
    }
    return false;
  }

  // f(x, no_grad=False) says that the gradients are wanted.
  bool AsksForGraph(NodeId body) const {
    for (NodeId call : m_.Nodes(Kind::kCall)) {
      NodeId value = m_.Inside(call, body) ? m_.Keyword(call, kA_no_grad) : 0;
      if (value && m_.KindOf(value) == Kind::kFalse) return true;
    }
    return false;
  }

  bool WantsGradients(NodeId body) const {
    if (AsksForGraph(body) || CallsAny(m_, flow_, body, {kA_grad, kA_jacobian, kA_hessian})) return true;
    return m_.Contains(body, {kA_requires_grad_, kA_requires_grad, kA_create_graph, kA_retain_graph, kA_saliency, kA_enable_grad, kA_jvp, kA_vjp,
                              kA_functional_call, kA_retain_grad}) ||
           m_.Contains(body, {kA_enable_grad});
  }

  void Judge(int f) {
    const FunctionInfo& info = m_.functions()[f];
    std::string_view name = m_.Name(info.name);
    if (!info.body || flow_.NoGradAt(info.body)) return;
    int cls = m_.ClassOf(info.body);
    NodeId eval_call = EvalCall(info.body);
    bool by_name = LooksLikeEvaluation(name);
    if (IsTestFile(m_.path()) || IsUnitTest(info, eval_call)) return;
    if (!eval_call && !by_name) return;
    if (IsFrameworkHook(m_, f)) return;
    bool trains = CallsBackward(m_, flow_, info.body) || CallsStep(m_, flow_, info.body);
    if (trains && eval_call) {
      if (NodeId validation = ValidationForward(info.body, f)) return Report(f, validation, Where::kAfterTraining);
    }
    NodeId forward = FirstForward(info.body, f);
    if (!forward || WantsGradients(info.body)) return;
    // Again with gradients, because it failed without; or called by an engine.
    if (InExcept(m_, forward) || OnlyHandedOver(info.name)) return;
    if (ForwardsUnderSwitch(info.body)) return;
    if (CalledByForwardOnly(info) || DifferentiatedByCaller(f)) return;
    if (name.starts_with("test_") && !m_.EnclosingLoop(forward)) return;
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
    Report(f, forward, trains ? Where::kSharedLoop : Where::kFunction);
  }

  // A test of a test framework, not a pass over test data.
  bool IsUnitTest(const FunctionInfo& info, NodeId eval_call) const {
    if (!m_.Name(info.name).starts_with("test_")) return false;
    if (!eval_call) return true;
    for (NodeId id = info.body; id < m_[info.body].last; ++id) {
      if (m_.KindOf(id) == Kind::kAssert) return true;
      if (m_.KindOf(id) == Kind::kCall && m_.CalleeName(id) && m_.Name(m_.CalleeName(id)).starts_with("assert")) return true;
    }
    return false;
  }

  // `model.eval()` and then a loop over other data, in a function that trains as well: the forward in that loop.
  NodeId ValidationForward(NodeId body, int f) const {
    for (NodeId call : m_.Calls(kA_eval)) {
      if (!m_.Inside(call, body) || m_.FunctionOf(call) != f || !m_.Receiver(call) || m_.Argument(call, 0)) continue;
      Atom model = m_.Path(m_.Receiver(call));
      NodeId block = m_[m_.Statement(call)].parent;
      for (NodeId loop : m_.Nodes(Kind::kFor)) {
        if (!model || loop < call || m_[loop].parent != block || TrainsBetween(call, loop, f)) continue;
        if (CallsBackward(m_, flow_, loop) || CallsStep(m_, flow_, loop) || WantsGradients(loop) || ForwardsUnderSwitch(loop)) continue;
        NodeId forward = FirstForward(loop, f);
        if (!forward || InExcept(m_, forward)) continue;
        NodeId object = m_.CalleeName(forward) == kA_forward ? m_.Receiver(forward) : m_.Callee(forward);
        if (m_.Path(object) == model) return forward;
      }
    }
    return 0;
  }

  bool TrainsBetween(NodeId from, NodeId to, int f) const {
    for (NodeId call : m_.Calls(kA_train)) {
      if (call > from && call < to && m_.FunctionOf(call) == f) return true;
    }
    return false;
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

  void Report(int f, NodeId forward, Where where) {
    const FunctionInfo& info = m_.functions()[f];
    const bool shared = where == Where::kSharedLoop;
    std::string name(m_.Name(info.name)), what = Quoted(m_, forward);
    Said message("", ""), help("", "");
    switch (where) {
      case Where::kSharedLoop:
        message = {"the same loop trains and evaluates, and " + what + " builds a graph in both",
                   "同一个循环既训练又评估，" + what + " 在两种情况下都会建立计算图"};
        help = {"run it under torch.set_grad_enabled(training)", "在 torch.set_grad_enabled(training) 下运行"};
        break;
      case Where::kAfterTraining:
        message = {"the loop after eval() evaluates with autograd on: " + what + " records a graph that nobody differentiates",
                   "eval() 之后的循环在评估时没有关闭自动求导：" + what + " 记录了无人求导的计算图"};
        help = {"put the loop under `with torch.no_grad():` (eval() changes dropout and batch norm, not autograd)",
                "将该循环放在 `with torch.no_grad():` 之下（eval() 只影响 dropout 和批归一化，不影响自动求导）"};
        break;
      case Where::kFunction:
        message = {"`" + name + "` evaluates with autograd on: " + what + " records a graph that nobody differentiates",
                   "`" + name + "` 在评估时没有关闭自动求导：" + what + " 记录了无人求导的计算图"};
        help = {"put @torch.no_grad() on `" + name + "` (eval() changes dropout and batch norm, not autograd)",
                "给 `" + name + "` 加上 @torch.no_grad()（eval() 只影响 dropout 和批归一化，不影响自动求导）"};
    }
    Pending& pending = report_.Add(forward, Severity::kWarning, std::move(message), std::move(help));
    pending.Needs({Ask::kCallerHasGrad, shared, 255, 0, HashName(name), 0});
    pending.Needs({Ask::kNoProjectCall, false, 255, 0, HashName(kModuleDifferentiates), 0});
    for (NodeId decorator : info.decorators) {
      NodeId called = m_.KindOf(decorator) == Kind::kCall ? m_.Callee(decorator) : decorator;
      if (m_.LastName(called)) pending.Needs({Ask::kDecoratorKeepsGrad, false, 255, 0, HashName(m_.Name(m_.LastName(called))), 0});
    }
    const Value& value = flow_.Of(forward);
    if (value.dep) NeedAttached(scope_, value, pending);
    auto torch = m_.imports().find(kA_torch);
    if (where == Where::kFunction && torch != m_.imports().end()) {
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
