#include <unordered_map>

#include "lint/rules.h"

// LT101: `total += loss` where loss is attached. Each addition chains one more graph to the total.
namespace lowtide::lint {
namespace {

struct Addition {
  NodeId statement, target, added;
};

class Rule101 {
 public:
  Rule101(const Scope& scope, Reporter& report) : scope_(scope), m_(scope.module), flow_(scope.flow), report_(report) {}

  void Run() {
    for (NodeId id : m_.Nodes(Kind::kAugmentedAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (!left || !right) continue;
      std::string_view between = m_.text().substr(m_[left].end, m_[right].start - m_[left].end);
      if (between.find("+=") == std::string_view::npos && between.find("-=") == std::string_view::npos) continue;
      Judge({id, left, right});
    }
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (!left || !right) continue;
      NodeId sum = right;
      while (m_.KindOf(sum) == Kind::kParenthesized && m_.First(sum)) sum = m_.First(sum);
      if (m_.KindOf(sum) == Kind::kBinary && SumsItself(sum, m_.Path(left))) Judge({id, left, sum});
    }
  }

 private:
  // `x = x + e`, `x = a * e + b * x`: x itself is one of the terms.
  bool SumsItself(NodeId sum, Atom path) const {
    if (!path || !m_.HasPath(sum, path)) return false;
    std::string_view text = m_.Text(sum);
    NodeId a = m_.Child(sum, Field::k_left), b = m_.Child(sum, Field::k_right);
    if (!a || !b) return false;
    std::string_view op = m_.text().substr(m_[a].end, m_[b].start - m_[a].end);
    if (op.find('+') == op.npos && op.find('-') == op.npos) return false;
    // The other term brings the tensor.
    NodeId other = m_.HasPath(a, path) ? b : a;
    (void)text;
    return !m_.HasPath(other, path) && (flow_.Of(other).flags & (kGrad | kMaybe)) != 0;
  }

  NodeId Added(const Addition& a) const {
    if (m_.KindOf(a.statement) == Kind::kAugmentedAssignment) return a.added;
    NodeId left = m_.Child(a.added, Field::k_left), right = m_.Child(a.added, Field::k_right);
    return m_.HasPath(left, m_.Path(a.target)) ? right : left;
  }

  bool IntoBackward(int function, Atom path) {
    auto [at, fresh] = into_.try_emplace(function);
    if (fresh) {
      for (Atom found : PathsIntoBackward(m_, flow_, function)) at->second[found] = true;
    }
    return at->second.count(path) != 0;
  }

  void Judge(const Addition& a) {
    NodeId added = Added(a);
    const Value& value = flow_.Of(added);
    if (!MayBeAttached(scope_, value) || flow_.NoGradAt(a.statement)) return;
    if (m_.KindOf(added) == Kind::kList || m_.KindOf(added) == Kind::kTuple || m_.KindOf(added) == Kind::kListComp) return;  // LT102
    if (IsTestFile(m_.path()) || IsCountName(m_.Name(m_.LastName(added))) || IsMetricValue(m_, added)) return;
    if (m_.KindOf(added) == Kind::kSubscript && value.dep && m_.Path(added) == kNoAtom) return;  // an entry of an unknown dict
    Atom path = m_.Path(a.target);
    if (!path && m_.KindOf(a.target) == Kind::kSubscript) path = m_.Path(m_.Child(a.target, Field::k_value));
    if (!path) return;
    int function = m_.FunctionOf(a.statement);
    if (IntoBackward(function, path)) return;
    bool of_self = m_.KindOf(a.target) != Kind::kIdentifier && m_.RootName(a.target) == kA_self;
    NodeId loop = SurvivesLoop(m_, a.statement, path);
    NodeId training = 0, evaluating = 0;
    for (NodeId up = loop ? m_.EnclosingLoop(a.statement) : 0; up; up = m_.EnclosingLoop(up)) {
      if (!training && IsTrainingLoop(m_, flow_, up)) training = up;
      if (up == loop) break;
    }
    std::string_view name = m_.Name(m_.functions()[function].name);
    if (loop && !training && EvaluatesHere(function, name) && IsDataLoop(m_, flow_, m_.EnclosingLoop(a.statement))) evaluating = loop;
    bool step_method = of_self && !loop && IsStepFunction(m_, flow_, function) && !ResetInside(m_, m_.functions()[function].body, path);
    if (!training && !evaluating && !step_method) return;
    if (loop && DiesWithStep(m_, flow_, loop)) return;
    if (training && ReturnedToTrainer(function, path, training)) return;
    Report(a, added, value, training != 0 || step_method, function);
  }

  bool EvaluatesHere(int function, std::string_view name) const {
    if (function == 0) return false;
    if (LooksLikeTraining(name)) return false;
    NodeId body = m_.functions()[function].body;
    if (CallsBackward(m_, flow_, body) || m_.Contains(body, {kA_requires_grad_, kA_create_graph})) return false;
    if (IsFrameworkHook(m_, function)) return false;
    return LooksLikeEvaluation(name) && !name.starts_with("test_");
  }

  // A sum that the function returns while it never differentiates by itself belongs to the caller's backward.
  bool ReturnedToTrainer(int function, Atom path, NodeId training) const {
    if (function == 0) return false;
    if (CallsBackward(m_, flow_, m_.Child(training, Field::k_body))) return false;
    for (NodeId id : m_.Nodes(Kind::kReturn)) {
      if (m_.FunctionOf(id) == function && m_.HasPath(id, path)) return true;
    }
    return false;
  }

  void Report(const Addition& a, NodeId added, const Value& value, bool trains, int function) {
    bool backed = (value.flags & kBacked) || trains;
    std::string target = Quoted(m_, a.target), what = Quoted(m_, added);
    std::string message =
        backed ? target + " adds up " + what + " with its autograd graph: one more graph node chain stays alive every step"
               : target + " adds up " + what + " with its autograd graph, and no backward frees it: every batch's activations stay in memory";
    std::string chinese = target + " 累加了 " + what + "，连同它的计算图：" +
                          (backed ? "每一步都多留下一串图节点" : "又没有 backward 释放它，每个批次的激活值都留在内存中");
    Pending& pending = report_.Add(a.statement, backed ? Severity::kWarning : Severity::kError, {std::move(message), std::move(chinese)},
                                   {"add " + what + ".item() (or .detach() and read it once at the end)",
               "改为累加 " + what + ".item()（或先 .detach()，最后只读取一次）"});
    if (!NeedAttached(scope_, value, pending)) {
      report_.Drop();
      return;
    }
    if (!trains && function > 0) {
      pending.Needs({Ask::kCallerHasGrad, false, 255, 0, HashName(m_.Name(m_.functions()[function].name)), 0});
    }
    pending.diagnostic.fix = AppendText(m_, added, ".detach()", true, {"detach what is added", "累加前先 detach"});
  }

  const Scope& scope_;
  const Module& m_;
  const Flow& flow_;
  Reporter& report_;
  std::unordered_map<int, std::unordered_map<Atom, bool>> into_;
};

}  // namespace

void CheckAccumulated(const Scope& scope, Reporter& report) { Rule101(scope, report).Run(); }

}  // namespace lowtide::lint
