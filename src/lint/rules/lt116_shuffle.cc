#include "lint/rules.h"

// LT116: shuffle=True together with a sampler: DataLoader raises, or the sampler's shard is lost.
namespace lowtide::lint {

void CheckShuffleSampler(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  for (NodeId call : m.Nodes(Kind::kCall)) {
    Atom name = m.CalleeName(call);
    if (!name || !m.Name(name).ends_with("DataLoader")) continue;
    NodeId shuffle = m.Keyword(call, kA_shuffle);
    NodeId sampler = m.Keyword(call, kA_sampler);
    NodeId batch_sampler = m.Keyword(call, kA_batch_sampler);
    if (!sampler || m.KindOf(sampler) == Kind::kNone) sampler = batch_sampler;
    if (!shuffle || m.KindOf(shuffle) != Kind::kTrue || !sampler || m.KindOf(sampler) == Kind::kNone) continue;
    if (m.KindOf(sampler) == Kind::kConditional && m.Contains(sampler, {kA_shuffle})) continue;
    // A name that this function only ever sets to None.
    bool assigned = false, real = false;
    Atom path = m.Path(sampler);
    for (NodeId id : m.Nodes(Kind::kAssignment)) {
      NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
      if (!left || !right || !path || m.Path(left) != path || m.FunctionOf(id) != m.FunctionOf(call)) continue;
      assigned = true;
      real |= m.KindOf(right) != Kind::kNone;
    }
    if (assigned && !real) continue;
    Pending& pending = report.Add(m[shuffle].parent, Severity::kError,
                                  {"shuffle=True together with sampler=" + std::string(m.Text(sampler).substr(0, 60)) + ": DataLoader raises ValueError when it is set",
               "shuffle=True 与 sampler=" + std::string(m.Text(sampler).substr(0, 60)) + " 同时使用：设置了 sampler 时 DataLoader 会抛出 ValueError"},
                                  {"write shuffle=(sampler is None), and give shuffle to the sampler",
               "写成 shuffle=(sampler is None)，由 sampler 负责打乱"});
    if (m.KindOf(sampler) == Kind::kIdentifier) {
      pending.diagnostic.fix = Fix{true, "shuffle only without a sampler", {{m[shuffle].start, m[shuffle].end, "(" + std::string(m.Text(sampler)) + " is None)"}}, "只在没有 sampler 时打乱"};
    }
  }
}

}  // namespace lowtide::lint
