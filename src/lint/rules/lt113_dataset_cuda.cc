#include <cctype>
#include <string>

#include "lint/rules.h"

// LT113: a Dataset that holds or returns CUDA tensors, used with workers.
namespace lowtide::lint {
namespace {

bool MovesToCuda(const Module& m, NodeId call) {
  Atom name = m.CalleeName(call);
  if (!m.Receiver(call)) return false;
  if (name == kA_cuda) return !m.IsTorch(m.Callee(call));
  if (name != kA_to) return false;
  NodeId where = m.Argument(call, 0, kA_device);
  if (!where) return false;
  if (m.KindOf(where) == Kind::kString) return m.Text(where).find("cuda") != std::string_view::npos;
  return false;
}

// What the constructor put on the GPU is used by another method, which workers run; class weights are not.
bool UsedAgain(const Module& m, const ClassInfo& cls, int constructor, NodeId call) {
  NodeId target = m.Receiver(call);
  if (m.RootName(target) != kA_self) {
    NodeId assignment = m.Ancestor(call, {Kind::kAssignment});
    target = assignment ? m.Child(assignment, Field::k_left) : 0;
  }
  while (target && m.KindOf(target) == Kind::kAttribute && m.KindOf(m.Child(target, Field::k_object)) == Kind::kAttribute) target = m.Child(target, Field::k_object);
  if (!target || m.RootName(target) != kA_self || m.KindOf(target) != Kind::kAttribute) return true;
  std::string name = "self." + std::string(m.Name(m.LastName(target)));
  std::string_view whole = m.text().substr(m[cls.node].start);
  for (std::string_view next : {"\nclass ", "\ndef ", "\nif "}) whole = whole.substr(0, whole.find(next));
  std::string_view made = m.Text(m.functions()[constructor].node);
  auto count = [&](std::string_view text) {
    size_t seen = 0;
    for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
      size_t end = at + name.size();
      bool more = end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_');
      seen += !more;
    }
    return seen;
  };
  return count(whole) > count(made);
}

}  // namespace

void CheckDatasetCuda(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (IsTestFile(m.path())) return;
  for (const ClassInfo& cls : m.classes()) {
    int index = m.FindClass(cls.name);
    if (index < 0 || !DerivesFromDataset(m, index)) continue;
    for (KnownAtom method : {kA___init__, kA___getitem__, kA___iter__}) {
      auto found = cls.methods.find(method);
      if (found == cls.methods.end()) continue;
      NodeId body = m.functions()[found->second].body, first = 0;
      for (NodeId call : m.Calls({kA_cuda, kA_to})) {
        if (m.Inside(call, body) && MovesToCuda(m, call)) {
          first = call;
          break;
        }
      }
      if (!first || (method == kA___init__ && !UsedAgain(m, cls, found->second, first))) continue;
      bool per_item = method != kA___init__;
      Pending& pending = report.Add(first, Severity::kWarning,
                                    {"`" + std::string(m.Name(cls.name)) + "` " + (per_item ? "puts each item on the GPU" : "holds CUDA tensors or a CUDA model") +
                                        ": every worker process opens its own CUDA context and copy, and forked workers fail",
               "`" + std::string(m.Name(cls.name)) + "` " + (per_item ? "把每个样本放到 GPU 上" : "持有 CUDA 张量或 CUDA 模型") + "：每个工作进程都要建立自己的 CUDA 上下文和副本，fork 出的工作进程则会失败"},
                                    {"return CPU tensors; move the batch in the training loop with .to(device, non_blocking=True)",
               "返回 CPU 张量；在训练循环中用 .to(device, non_blocking=True) 移动批次"});
      pending.Needs({Ask::kHasWorkers, !per_item, 255, 0, HashName(m.Name(cls.name)), 0});
      break;
    }
  }
}

}  // namespace lowtide::lint
