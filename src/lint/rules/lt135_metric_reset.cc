#include <algorithm>

#include "lint/rules.h"

// LT135: a torchmetrics metric that is read every epoch and never reset.
namespace lowtide::lint {
namespace {

class Rule135 {
 public:
  Rule135(const Scope& scope, Reporter& report) : m_(scope.module), report_(report) {}

  void Run() {
    if (!m_.Has(kA_compute) || m_.text().find("torchmetrics") == std::string_view::npos) return;
    if (m_.text().find("reset") != std::string_view::npos || IsTestFile(m_.path())) return;
    std::vector<Atom> metrics;
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (left && right && m_.Path(left) && BuildsMetric(right)) metrics.push_back(m_.Path(left));
    }
    for (NodeId call : m_.Calls(kA_compute)) {
      Atom path = m_.Path(m_.Receiver(call));
      if (path && std::find(metrics.begin(), metrics.end(), path) != metrics.end()) Judge(call, path);
    }
  }

 private:
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
      if (IsEpochLoop(m_, loop) && FedIn(loop, path)) return Report(call);
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
  Reporter& report_;
};

}  // namespace

void CheckMetricReset(const Scope& scope, Reporter& report) { Rule135(scope, report).Run(); }

}  // namespace lowtide::lint
