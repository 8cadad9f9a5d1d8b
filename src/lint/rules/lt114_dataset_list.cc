#include "lint/rules.h"

// LT114 (preview): a Dataset that owns many Python objects: reference counts un-share the pages in every worker.
namespace lowtide::lint {
namespace {

// A value that is a big collection of Python objects by the way it is made.
bool MakesObjects(const Module& m, NodeId value) {
  Kind kind = m.KindOf(value);
  if (kind == Kind::kListComp || kind == Kind::kDictComp) {
    return m.Contains(value, {kA_open, kA_listdir, kA_glob, kA_walk, kA_readlines, kA_rglob, kA_iterrows, kA_split, kA_strip});
  }
  if (kind != Kind::kCall) return false;
  Atom name = m.CalleeName(value);
  NodeId receiver = m.Receiver(value);
  if (name == kA_load && receiver) return m.LastName(receiver) == kA_json || m.LastName(receiver) == kA_pickle;
  if (name == kA_readlines || name == kA_tolist || name == kA_to_dict || name == kA_splitlines) return true;
  if (name == kA_list || name == kA_sorted) {
    NodeId inner = m.Argument(value, 0);
    return inner && m.Contains(inner, {kA_glob, kA_listdir, kA_rglob, kA_open});
  }
  return name == kA_listdir || name == kA_glob;
}

// `self.x[...]` in another method, by something that is not the item's index: a lookup in a dict of objects.
bool LookedUpByKey(const Module& m, const ClassInfo& cls, Atom path) {
  auto init = cls.methods.find(kA___init__);
  for (NodeId id = cls.node; id < m[cls.node].last; ++id) {
    if (m.KindOf(id) != Kind::kSubscript || m.Path(m.Child(id, Field::k_value)) != path) continue;
    if (init != cls.methods.end() && m.FunctionOf(id) == init->second) continue;
    NodeId key = m.Child(id, Field::k_subscript);
    if (!key) continue;
    Kind kind = m.KindOf(key);
    if (kind == Kind::kSlice || kind == Kind::kString || kind == Kind::kInteger) continue;
    if (HasHint(m.Text(key), {"id", "key", "name"}) && !HasHint(m.Text(key), {"idx", "index"})) return true;
  }
  return false;
}

}  // namespace

void CheckDatasetList(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  for (const ClassInfo& cls : m.classes()) {
    int index = m.FindClass(cls.name);
    auto init = cls.methods.find(kA___init__);
    if (index < 0 || init == cls.methods.end() || !DerivesFromDataset(m, index) || !cls.methods.count(kA___getitem__)) continue;
    const FunctionInfo& info = m.functions()[init->second];
    for (NodeId id : m.Nodes(Kind::kAssignment)) {
      if (m.FunctionOf(id) != init->second) continue;
      NodeId left = m.Child(id, Field::k_left), right = m.Child(id, Field::k_right);
      if (!left || !right || m.KindOf(left) != Kind::kAttribute || m.RootName(left) != kA_self) continue;
      Atom path = m.Path(left);
      bool given = false;
      for (Atom parameter : info.parameters) given |= m.KindOf(right) == Kind::kIdentifier && m[right].atom == parameter;
      bool big = MakesObjects(m, right) || (given && LookedUpByKey(m, cls, path));
      if (!big) continue;
      Pending& pending = report.Add(id, Severity::kNote,
                                    {Quoted(m, left) + " is a collection of Python objects: reading it touches reference counts, so each worker ends up with its own copy of all of it",
               Quoted(m, left) + " 是 Python 对象的集合：读取会修改引用计数，最终每个工作进程都有一份完整副本"},
                                    {"keep it as one NumPy array, tensor, Arrow table or mapped file; strings as one buffer with offsets",
               "改存为单个 NumPy 数组、张量、Arrow 表或内存映射文件；字符串存为一个缓冲区加偏移"});
      pending.Needs({Ask::kHasWorkers, false, 255, 0, HashName(m.Name(cls.name)), 0});
      break;
    }
  }
}

}  // namespace lowtide::lint
