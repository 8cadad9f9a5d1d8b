#include <unordered_set>

#include "lint/rules.h"

// LT119 (preview): every rank saves the same file or prints the same line.
namespace lowtide::lint {
namespace {

bool Distributed(const Module& m) {
  return m.Has(kA_init_process_group) || m.Has(kA_DistributedDataParallel) || m.Has(kA_DDP) || m.Has(kA_get_rank) || m.Has(kA_local_rank) || m.Has(kA_DistributedSampler) ||
         m.text().find("LOCAL_RANK") != std::string_view::npos;
}

}  // namespace

void CheckRankGuard(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (!Distributed(m) || IsTestFile(m.path())) return;
  for (NodeId call : m.Calls(kA_save)) {
    if (!m.IsTorch(m.Callee(call)) || RankGuarded(m, call)) continue;
    NodeId path = m.Argument(call, 1, kA_f);
    if (path && HasHint(m.Text(path), {"rank", "gpu", "shard"})) continue;  // one file per rank
    int function = m.FunctionOf(call);
    Pending& pending = report.Add(call, Severity::kWarning, {"every rank writes this file at the same time: it can end up torn",
               "所有进程同时写这个文件：内容可能损坏"},
                                  {"guard it with rank == 0, and let the others wait at a barrier",
               "只在 rank == 0 时写入，其他进程在 barrier 处等待"});
    if (function > 0) pending.Needs({Ask::kCallerUnguarded, false, 255, 0, HashName(m.Name(m.functions()[function].name)), 0});
  }
  std::unordered_set<int> reported;
  for (NodeId call : m.Calls(kA_print)) {
    NodeId callee = m.Callee(call);
    int function = m.FunctionOf(call);
    if (m.KindOf(callee) != Kind::kIdentifier || RankGuarded(m, call) || function == 0 || reported.count(function)) continue;
    if (InExcept(m, call) || HasHint(m.Text(call), {"rank"})) continue;
    std::string_view name = m.Name(m.functions()[function].name);
    if (!HasHint(name, {"train", "main", "fit", "run", "worker", "epoch"})) continue;
    reported.insert(function);
    Pending& pending = report.Add(call, Severity::kNote, {"every rank prints this line",
               "每个进程都会打印这一行"}, {"print on rank 0 only",
               "只在 rank 0 上打印"});
    pending.Needs({Ask::kCallerUnguarded, false, 255, 0, HashName(name), 0});
  }
}

}  // namespace lowtide::lint
