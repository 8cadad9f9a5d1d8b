#include <algorithm>

#include "lint/rules.h"

// LT135: a metric, of torchmetrics or one that keeps lists itself, that is read again and again and never reset.
namespace lowtide::lint {
namespace {

class Rule135 {
 public:
  Rule135(const Scope& scope, Reporter& report) : m_(scope.module), flow_(scope.flow), report_(report) {}

  void Run() {
    if (!m_.Has(kA_compute) || IsTestFile(m_.path())) return;
    theirs_ = m_.text().find("torchmetrics") != std::string_view::npos && m_.text().find("reset") == std::string_view::npos;
    own_ = !SomebodyResets();
    if (!theirs_ && !own_) return;
    std::vector<Atom> metrics;
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (left && right && m_.Path(left) && ((theirs_ && BuildsMetric(right)) || (own_ && BuildsOwn(right)))) metrics.push_back(m_.Path(left));
    }
    for (NodeId call : m_.Calls(kA_compute)) {
      Atom path = m_.Path(m_.Receiver(call));
      if (path && std::find(metrics.begin(), metrics.end(), path) != metrics.end()) Judge(call, path);
    }
  }

 private:
  // `.reset()` of anything but an object's own.
  bool SomebodyResets() const {
    std::string_view text = m_.text();
    for (size_t at = text.find(".reset("); at != text.npos; at = text.find(".reset(", at + 1)) {
      size_t line = text.find_first_not_of(" \t", text.rfind('\n', at) + 1);
      std::string_view before = text.substr(line, at - line);
      if (before != "self" && before.find_first_of(" #") == before.npos) return true;  // a statement, no prose
    }
    return false;
  }

  // A class of this file with update, compute and reset in fact or in effect, which keeps what it is given in lists.
  bool BuildsOwn(NodeId value) const {
    NodeId callee = m_.KindOf(value) == Kind::kCall ? m_.Callee(value) : 0;
    if (!callee || m_.KindOf(callee) != Kind::kIdentifier) return false;
    size_t start = m_.text().find("\nclass " + std::string(m_.Name(m_[callee].atom)));  // its members may not be parsed
    if (start == std::string_view::npos) return false;
    std::string_view text = WholeClass(m_, start + 1);
    auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
    return has("def reset(self") && has("def compute(self") && (has(".append(") || has(".extend("));
  }

  // A constructor of torchmetrics, also with .to(device) behind it.
  bool BuildsMetric(NodeId value) const {
    for (int hops = 0; value && m_.KindOf(value) == Kind::kCall && hops < 3; ++hops) {
      std::string name = m_.Qualified(m_.Callee(value));
      if (name.starts_with("torchmetrics.") && name.find(".functional") == name.npos) return true;
      value = m_.CalleeName(value) == kA_to || m_.CalleeName(value) == kA_cuda ? m_.Receiver(value) : 0;
    }
    return false;
  }

  bool FedIn(NodeId outer, Atom path) const {
    for (NodeId id = outer; id < m_[outer].last; ++id) {
      if (m_.KindOf(id) != Kind::kCall) continue;
      if (m_.CalleeName(id) == kA_update && m_.Path(m_.Receiver(id)) == path) return true;
      if (m_.Path(m_.Callee(id)) == path) return true;
    }
    return false;
  }

  void Judge(NodeId call, Atom path) {
    for (NodeId loop = m_.EnclosingLoop(call); loop; loop = m_.EnclosingLoop(loop)) {
      if (ResetInside(m_, loop, path)) return;
      if ((IsEpochLoop(m_, loop) || (own_ && IsTrainingLoop(m_, flow_, loop))) && FedIn(loop, path)) return Report(call);
    }
    int function = m_.FunctionOf(call), cls = m_.ClassOf(call);
    if (function <= 0 || cls < 0 || !m_.IsLightning(cls)) return;
    if (!m_.Name(m_.functions()[function].name).ends_with("epoch_end")) return;
    // Lightning resets what is logged as an object, not what is computed by hand.
    NodeId body = m_.classes()[cls].node;
    if (FedIn(body, path) && !LoggedWhole(body, path)) Report(call);
  }

  bool LoggedWhole(NodeId outer, Atom path) const {
    for (NodeId call : m_.Calls({kA_log, kA_log_dict})) {
      NodeId list = m_.Inside(call, outer) ? m_.Child(call, Field::k_arguments) : 0;
      for (NodeId id = list; list && id < m_[list].last; ++id) {
        if (m_.Path(id) != path || m_.KindOf(m_[id].parent) == Kind::kAttribute) continue;
        return true;
      }
    }
    return false;
  }

  void Report(NodeId call) {
    std::string metric = Quoted(m_, m_.Receiver(call));
    report_.Add(call, Severity::kWarning,
                {metric + " is never reset: from the second epoch on compute() mixes in all epochs before, and a metric that keeps lists keeps every batch",
                 metric + " 从未重置：从第二轮起 compute() 会混入此前所有轮次的数据，保存列表的指标还会留住每个批次"},
                {"call " + std::string(m_.Text(m_.Receiver(call))) + ".reset() after compute()",
                 "在 compute() 之后调用 " + std::string(m_.Text(m_.Receiver(call))) + ".reset()"});
  }

  const Module& m_;
  const Flow& flow_;
  Reporter& report_;
  bool theirs_ = false, own_ = false;
};

}  // namespace

void CheckMetricReset(const Scope& scope, Reporter& report) { Rule135(scope, report).Run(); }

}  // namespace lowtide::lint
