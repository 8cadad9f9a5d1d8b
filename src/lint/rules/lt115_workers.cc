#include "lint/rules.h"

// LT115 (preview): persistent_workers without workers, and loaders that are built anew every epoch.
namespace lowtide::lint {

void CheckPersistentWorkers(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  for (NodeId call : m.Calls(kA_DataLoader)) {
    NodeId persistent = m.Keyword(call, kA_persistent_workers), workers = m.Argument(call, 5, kA_num_workers);
    bool literal = workers && m.KindOf(workers) == Kind::kInteger;
    bool zero = !workers || (literal && m.Text(workers) == "0");
    bool splat = false;
    if (NodeId list = m.Child(call, Field::k_arguments)) {
      for (NodeId argument : m.Children(list)) splat |= m.KindOf(argument) == Kind::kDictSplat;
    }
    if (persistent && m.KindOf(persistent) == Kind::kTrue && !splat && (zero || !literal)) {
      report.Add(m[persistent].parent, Severity::kNote,
                 zero ? "persistent_workers=True without workers raises ValueError"
                      : "persistent_workers=True raises ValueError when " + Quoted(m, workers) + " is 0",
                 zero ? "give num_workers, or drop it" : "write persistent_workers=" + std::string(m.Text(workers)) + " > 0");
      continue;
    }
    NodeId loop = m.EnclosingLoop(call);
    if (!loop || zero || !IsEpochLoop(m, loop) || !IsTrainingLoop(m, scope.flow, loop)) continue;
    report.Add(call, Severity::kNote,
               "a loader with workers is built in every epoch: the workers start again each time" +
                   std::string(persistent && m.KindOf(persistent) == Kind::kTrue ? ", and the persistent ones of the last epoch live until collected" : ""),
               "build the loader once, before the loop");
  }
}

}  // namespace lowtide::lint
