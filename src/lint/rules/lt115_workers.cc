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
                 {zero ? "persistent_workers=True without workers raises ValueError"
                       : "persistent_workers=True raises ValueError when " + Quoted(m, workers) + " is 0",
                  zero ? "没有工作进程时 persistent_workers=True 会抛出 ValueError"
                       : "当 " + Quoted(m, workers) + " 为 0 时 persistent_workers=True 会抛出 ValueError"},
                 {zero ? "give num_workers, or drop it" : "write persistent_workers=" + std::string(m.Text(workers)) + " > 0",
                  zero ? "设置 num_workers，或去掉它" : "写成 persistent_workers=" + std::string(m.Text(workers)) + " > 0"});
      continue;
    }
    NodeId loop = m.EnclosingLoop(call);
    if (!loop || zero || !IsEpochLoop(m, loop) || !IsTrainingLoop(m, scope.flow, loop)) continue;
    bool stay = persistent && m.KindOf(persistent) == Kind::kTrue;
    report.Add(call, Severity::kNote,
               {"a loader with workers is built in every epoch: the workers start again each time" +
                   std::string(stay ? ", and the persistent ones of the last epoch live until collected" : ""),
               "每轮都重新创建带工作进程的 DataLoader：工作进程每次都要重新启动" + std::string(stay ? "，上一轮的常驻进程要到回收时才退出" : "")},
               {"build the loader once, before the loop",
               "在循环之前只创建一次"});
  }
}

}  // namespace lowtide::lint
