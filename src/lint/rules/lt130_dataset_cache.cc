#include "lint/rules.h"

// LT130 (preview): a Dataset that stores what it loads: each worker fills a cache of its own.
namespace lowtide::lint {

void CheckDatasetCache(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  for (const ClassInfo& cls : m.classes()) {
    int index = m.FindClass(cls.name);
    auto item = cls.methods.find(kA___getitem__);
    if (index < 0 || item == cls.methods.end() || !DerivesFromDataset(m, index)) continue;
    for (NodeId id : m.Nodes(Kind::kAssignment)) {
      NodeId left = m.Child(id, Field::k_left);
      if (m.ClassOf(id) != index || !left || m.KindOf(left) != Kind::kSubscript || m.RootName(left) != kA_self) continue;
      int function = m.FunctionOf(id);
      bool reached = function == item->second;  // here, or in a method that __getitem__ calls
      for (NodeId call : m.Nodes(Kind::kCall)) reached |= m.FunctionOf(call) == item->second && scope.flow.ResolveCall(call) == function;
      NodeId holder = m.Child(left, Field::k_value), key = m.Child(left, Field::k_subscript);
      if (!reached || !holder || m.KindOf(holder) != Kind::kAttribute || !key || m.KindOf(key) == Kind::kString || m.KindOf(key) == Kind::kSlice) continue;
      bool bounded = m.FindCall(cls.node, {kA_pop, kA_popitem, kA_clear}) != 0;
      for (NodeId other = cls.node; other < m[cls.node].last && !bounded; ++other) bounded = m.KindOf(other) == Kind::kDelete;
      if (bounded) continue;
      Pending& pending = report.Add(id, Severity::kNote,
                                    {"`" + std::string(m.Name(cls.name)) + "` keeps every item it has loaded in " + Quoted(m, holder) +
                                        ": each worker fills a cache of its own, up to the whole dataset times the number of workers",
               "`" + std::string(m.Name(cls.name)) + "` 把加载过的每个样本都保存在 " + Quoted(m, holder) + "：每个工作进程各有一份缓存，最多可达整个数据集乘以进程数"},
                                    {"share one cache (a mapped file, shared memory), bound it, or cache before the workers start",
               "共用一份缓存（内存映射文件、共享内存），限制其大小，或在工作进程启动前缓存"});
      pending.Needs({Ask::kHasWorkers, false, 255, 0, HashName(m.Name(cls.name)), 0});
      break;
    }
  }
}

}  // namespace lowtide::lint
