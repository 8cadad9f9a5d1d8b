#include <unordered_map>

#include "lint/rules.h"

// LT102: a tensor with its graph goes into a container that outlives the step.
namespace lowtide::lint {
namespace {

class Rule102 {
 public:
  Rule102(const Scope& scope, Reporter& report) : scope_(scope), m_(scope.module), flow_(scope.flow), report_(report) {}

  void Run() {
    for (NodeId call : m_.Calls({kA_append, kA_extend, kA_appendleft, kA_insert, kA_put})) {
      NodeId receiver = m_.Receiver(call);
      NodeId stored = m_.CalleeName(call) == kA_insert ? m_.Argument(call, 1) : m_.Argument(call, 0);
      if (receiver && stored) Judge(call, receiver, stored);
    }
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (!left || !right || m_.KindOf(left) != Kind::kSubscript) continue;
      if (m_.Path(left)) {
        JudgeCollector(id, left, right);  // a constant key: replaced each time, unless the object collects
      } else if (!IsArray(m_.Child(left, Field::k_value))) {
        Judge(id, m_.Child(left, Field::k_value), right);
      }
    }
    for (NodeId id : m_.Nodes(Kind::kAugmentedAssignment)) {  // outputs += [output]
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (left && right && m_.KindOf(right) == Kind::kList) Judge(id, left, right);
    }
  }

 private:
  // Made by NumPy: what is stored in it is copied as numbers.
  bool IsArray(NodeId container) const {
    const Atom path = m_.Path(container);
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (!path || !left || !right || m_.Path(left) != path || m_.KindOf(right) != Kind::kCall) continue;
      auto root = m_.imports().find(m_.RootName(m_.Callee(right)));
      if (root != m_.imports().end() && (root->second == "numpy" || root->second.starts_with("numpy."))) return true;
    }
    return false;
  }

  NodeId Container(NodeId id) const {
    while (id && m_.KindOf(id) == Kind::kSubscript && !m_.Path(id)) id = m_.Child(id, Field::k_value);
    return id;
  }

  bool IntoBackward(int function, Atom path) {
    auto [at, fresh] = into_.try_emplace(function);
    if (fresh) {
      for (Atom found : PathsIntoBackward(m_, flow_, function)) at->second[found] = true;
    }
    return at->second.count(path) != 0;
  }

  // `for e, value in enumerate(values): best[e] = value` inside the loop that trains: the same keys come again, each entry
  // is replaced, unless it is made from itself.
  bool SameKeysAgain(NodeId at) const {
    NodeId left = m_.KindOf(at) == Kind::kAssignment ? m_.Child(at, Field::k_left) : 0, right = left ? m_.Child(at, Field::k_right) : 0;
    NodeId loop = m_.EnclosingLoop(at);
    if (!left || !right || m_.KindOf(left) != Kind::kSubscript || !loop || m_.KindOf(loop) != Kind::kFor || !m_.EnclosingLoop(loop)) return false;
    NodeId key = m_.Child(left, Field::k_subscript), items = m_.Child(loop, Field::k_right), targets = m_.Child(loop, Field::k_left);
    if (!key || !items || !targets || m_.KindOf(key) != Kind::kIdentifier || !m_.HasPath(targets, m_[key].atom)) return false;
    if (IsTrainingLoop(m_, flow_, loop) || IsDataLoop(m_, flow_, loop)) return false;
    return !m_.HasPath(right, m_.Path(m_.Child(left, Field::k_value)));
  }

  // deque(maxlen=...), a queue with a size, or something that is emptied elsewhere in the class or file.
  bool Bounded(Atom path, NodeId at, bool of_self) const {
    int function = m_.FunctionOf(at);
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (!left || !right || m_.Path(left) != path) continue;
      if (m_.Contains(right, {kA_maxlen, kA_maxsize, kA_Queue})) return true;
      int where = m_.FunctionOf(id);
      if (of_self && where != function && m_.functions()[where].name != kA___init__) return true;  // reset elsewhere
      if (NodeId value = right; m_.KindOf(value) == Kind::kSubscript && m_.HasPath(value, path)) return true;  // x = x[-n:]
    }
    for (NodeId call : m_.Calls({kA_clear, kA_pop, kA_popleft, kA_get, kA_reset})) {
      if (m_.Path(m_.Receiver(call)) == path && (of_self || m_.FunctionOf(call) == function)) return true;
    }
    for (NodeId id : m_.Nodes(Kind::kDelete)) {
      if (m_.HasPath(id, path)) return true;
    }
    return false;
  }

  // The list feeds torch.stack/cat/sum whose result is differentiated elsewhere: by the caller, or through self.
  bool Reread(Atom path, int function) const {
    for (NodeId call : m_.Calls({kA_stack, kA_cat, kA_sum, kA_mean})) {
      if (m_.FunctionOf(call) != function && m_.HasPath(call, path)) return true;
    }
    return false;
  }

  void Judge(NodeId at, NodeId receiver, NodeId stored) {
    const Value& value = flow_.Of(stored);
    if (!MayBeAttached(scope_, value) || flow_.NoGradAt(at)) return;
    NodeId container = Container(receiver);
    if (m_.LastName(container) == kA_data || SameKeysAgain(at)) return;
    if (Atom cls = flow_.InstanceClass(container); cls && m_.FindClass(cls) < 0 && !HasHint(m_.Name(cls), {"list", "deque", "queue", "dict", "buffer"})) return;
    Atom path = m_.Path(container);
    if (!path || PlainByTest(m_, stored) || PartsDetached(stored) || IsMetricValue(m_, stored)) return;
    if (flow_.Of(container).flags & (kModel | kOptimizer)) return;
    if (value.flags & (kModel | kLossFn | kOptimizer | kLoader) || IsTestFile(m_.path())) return;
    int function = m_.FunctionOf(at);
    if (IntoBackward(function, path)) return;
    bool of_self = m_.KindOf(container) != Kind::kIdentifier && m_.RootName(container) == kA_self;
    bool of_module = function != 0 && !of_self && IsModuleName(container, function);
    if (Bounded(path, at, of_self)) return;
    NodeId loop = SurvivesLoop(m_, at, path);
    bool training = false;
    for (NodeId up = loop ? m_.EnclosingLoop(at) : 0; up && !training; up = m_.EnclosingLoop(up)) {
      training = IsTrainingLoop(m_, flow_, up);
      if (up == loop) break;
    }
    std::string_view name = m_.Name(m_.functions()[function].name);
    bool evaluating = loop && !training && Evaluates(function, name) && IsDataLoop(m_, flow_, m_.EnclosingLoop(at));
    bool step = (of_self || of_module) && !loop && (IsStepFunction(m_, flow_, function) || (of_self && ClassTrains(at)));
    if (!training && !evaluating && !step) return;
    if (loop && DiesWithStep(m_, flow_, loop)) return;
    if (training && !CallsBackward(m_, flow_, m_.EnclosingLoop(at)) && Returned(function, path)) return;
    if ((of_self || of_module) && Reread(path, function)) return;
    bool backed = (value.flags & kBacked) != 0;
    std::string what = Quoted(m_, stored), where = Quoted(m_, container);
    std::string message = what + " is kept in " + where + " with its autograd graph";
    message += backed ? ": backward has freed most of it, the tensor and its graph nodes stay alive"
                      : ": the activations behind it stay alive as long as the container";
    std::string chinese = what + " 连同计算图被存入 " + where;
    chinese += backed ? "：backward 已释放大部分，张量及其图节点仍然存活" : "：只要该容器还在，其背后的激活值就一直存活";
    Pending& pending = report_.Add(at, backed || training ? Severity::kWarning : Severity::kError, {std::move(message), std::move(chinese)},
                               {"store " + what + ".detach() (.item() for a number, .detach().cpu() for a GPU tensor)",
               "改为存入 " + what + ".detach()（数值用 .item()，GPU 张量用 .detach().cpu()）"});
    if (!NeedAttached(scope_, value, pending)) return report_.Drop();
    if (evaluating) pending.Needs({Ask::kCallerHasGrad, false, 255, 0, HashName(name), 0});
    Kind kind = m_.KindOf(stored);
    if (!(value.flags & kContainer) && (kind == Kind::kIdentifier || kind == Kind::kAttribute || kind == Kind::kSubscript) && IsPlainTensor(value)) {
      pending.diagnostic.fix = AppendText(m_, stored, ".detach()", value.flags & kLossNamed, {"detach what is stored", "存入前先 detach"});
    }
  }

  // Another method of the class differentiates: this one is called beside it, step by step.
  bool ClassTrains(NodeId at) const {
    int cls = m_.ClassOf(at);
    if (cls < 0 || m_.functions()[m_.FunctionOf(at)].name == kA___init__ || m_.IsLightning(cls) || m_.IsNnModule(cls)) return false;
    NodeId body = m_.classes()[cls].node;
    for (NodeId backward : m_.Calls(kA_backward)) {
      if (m_.Inside(backward, body) && IsBackwardCall(m_, backward)) return true;
    }
    return false;
  }

  bool IsPlainTensor(const Value& value) const { return value.flags & kGrad && !value.dep; }

  bool IsModuleName(NodeId container, int function) const {
    Atom name = m_.RootName(container);
    if (!name) return false;
    for (Atom parameter : m_.functions()[function].parameters) {
      if (parameter == name) return false;
    }
    NodeId body = m_.functions()[function].body;
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      if (m_.Inside(id, body) && m_.RootName(m_.Child(id, Field::k_left)) == name) return false;
    }
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      if (m_.FunctionOf(id) == 0 && m_.RootName(m_.Child(id, Field::k_left)) == name) return true;
    }
    return false;
  }

  bool Evaluates(int function, std::string_view name) const {
    if (function == 0 || LooksLikeTraining(name) || name.starts_with("test_")) return false;
    NodeId body = m_.functions()[function].body;
    if (CallsBackward(m_, flow_, body) || m_.Contains(body, {kA_requires_grad_, kA_create_graph})) return false;
    return LooksLikeEvaluation(name) && !IsFrameworkHook(m_, function);
  }

  bool Returned(int function, Atom path) const {
    for (NodeId id : m_.Nodes(Kind::kReturn)) {
      if (m_.FunctionOf(id) == function && m_.HasPath(id, path)) return true;
    }
    return false;
  }

  // `stats["loss"] = loss` on an object whose __setitem__ appends.
  // `output["loss"] = output["loss"].detach()` before output is stored: its author has thought of it.
  bool PartsDetached(NodeId stored) const {
    if (m_.KindOf(stored) != Kind::kIdentifier) return false;
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (!left || !right || m_.KindOf(left) != Kind::kSubscript || m_.FunctionOf(id) != m_.FunctionOf(stored)) continue;
      if (m_.Path(m_.Child(left, Field::k_value)) == m_[stored].atom && m_.FindCall(right, {kA_detach, kA_item})) return true;
    }
    return false;
  }

  void JudgeCollector(NodeId id, NodeId left, NodeId right) {
    NodeId base = m_.Child(left, Field::k_value);
    const Value& value = flow_.Of(right);
    std::string_view name = m_.Name(m_.LastName(base));
    if (!(value.flags & kGrad) || flow_.NoGradAt(id) || !HasHint(name, {"stat", "collector", "history", "tracker", "meter"})) return;
    if (HasHint(name, {"state"})) return;  // saved_state: what a layer knows of the steps before, no statistics
    Pending& pending = report_.Add(id, Severity::kWarning,
                               {Quoted(m_, base) + " collects " + Quoted(m_, right) + " with its autograd graph every time it is set",
               Quoted(m_, base) + " 在每次赋值时都收集 " + Quoted(m_, right) + "，连同它的计算图"},
                               {"store " + Quoted(m_, right) + ".item()",
               "改为存入 " + Quoted(m_, right) + ".item()"});
    pending.Needs({Ask::kKeeps, false, 2, 0, HashName("__setitem__"), 0});
    if (!NeedAttached(scope_, value, pending)) report_.Drop();
  }

  const Scope& scope_;
  const Module& m_;
  const Flow& flow_;
  Reporter& report_;
  std::unordered_map<int, std::unordered_map<Atom, bool>> into_;
};

}  // namespace

void CheckStored(const Scope& scope, Reporter& report) { Rule102(scope, report).Run(); }

}  // namespace lowtide::lint
