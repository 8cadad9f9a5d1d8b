#include "lint/rules.h"

// LT129: itertools.cycle over a loader keeps every batch of the first pass, and repeats just these.
namespace lowtide::lint {

void CheckCycle(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  for (NodeId call : m.Calls(kA_cycle)) {
    if (m.Qualified(m.Callee(call)) != "itertools.cycle") continue;
    NodeId items = m.Argument(call, 0);
    if (!items || IsTestFile(m.path())) continue;
    const Value& value = scope.flow.Of(items);
    bool named_batches = m.LastName(items) && HasHint(m.Name(m.LastName(items)), {"batch"});  // a list of them, as likely
    bool loader = (value.flags & kLoader && !named_batches) || (m.KindOf(items) == Kind::kCall && m.Name(m.CalleeName(items)).ends_with("DataLoader")) ||
                  (m.LastName(items) && HasHint(m.Name(m.LastName(items)), {"loader"}));
    if (!loader) continue;
    report.Add(call, Severity::kWarning,
               {"itertools.cycle keeps a copy of every batch that " + Quoted(m, items) + " gives, a whole pass over the data, and replays them: no new shuffle, no new augmentation",
               "itertools.cycle 会保留 " + Quoted(m, items) + " 给出的每个批次（整整一轮数据）并反复重放：不再打乱，也没有新的增强"},
               {"write a generator: while True: yield from " + std::string(m.Text(items)),
               "写一个生成器：while True: yield from " + std::string(m.Text(items))});
  }
}

}  // namespace lowtide::lint
