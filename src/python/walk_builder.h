#pragma once

#include <unordered_map>
#include <vector>

#include "python/walk_graph.h"
#include "python/walk_types.h"

namespace lowtide::walk {

// The word at an offset into a live object.
inline uint64_t WordAt(uint64_t base, size_t offset) {
  return *reinterpret_cast<const uint64_t*>(base + offset);
}
inline uint64_t WordAt(PyObject* base, size_t offset) {
  return WordAt(reinterpret_cast<uint64_t>(base), offset);
}

// The C++ object that a Python object of PyTorch's stands for; 0: none.
uint64_t NativeOf(PyObject* object, TypeInfo::Special special);

// Fills a census: takes the nodes in the order in which they were found and adds what each refers to.
class Builder {
 public:
  Builder(Census* census, bool scoped) : c_(*census), scoped_(scoped) {}

  void Run();

  // Candidates for roots, in case nothing else reaches them: words of evaluation stacks, and targets of weak
  // edges.
  struct StackWord {
    NodeId node;
    uint32_t frame;
  };
  const std::vector<StackWord>& stack() const { return stack_; }
  const std::vector<NodeId>& weak_targets() const { return weak_targets_; }

 private:
  // Nodes
  static void Fetch(uint64_t address);
  void Reserve(size_t nodes);
  NodeId NewNode(uint64_t address, uint32_t type, Kind kind, Origin origin);
  NodeId Adopt(PyObject* object) { return Adopt(object, types_.Of(Py_TYPE(object))); }
  NodeId Adopt(PyObject* object, const TypeInfo& info);
  NodeId AdoptNative(uint64_t address, uint64_t vtable, Kind kind);

  // Roots
  void AddRoots();
  void AddModules(PyObject* modules, const std::vector<heap::Root>& frames);
  void AddModule(const char* name, PyObject* module, uint32_t late);
  void AddFrame(const LtFrame& frame);

  // Python objects
  void Expand(NodeId node);
  void ExpandFrame(NodeId node);
  void ExpandObject(NodeId node);
  void ExpandNamespace(PyObject* dict);
  void ExpandArray(PyObject* array);
  void AddEdge(NodeId to, uint16_t slot);
  void VisitChild(PyObject* child);
  static int VisitTrampoline(PyObject* child, void* self);
  void SetWeak(PyObject* object, const TypeInfo& info);
  void SetWeakOfFrame(PyObject* frame);
  bool IsWeak(PyObject* child) const;
  void NoteWeak(NodeId node);

  // PyTorch's C++ objects (walk_torch.cc)
  void ExpandNative(NodeId node, uint64_t address);
  void ExpandTensor(uint64_t address, size_t bytes);
  void ExpandMeta(uint64_t meta);
  void ExpandGraphNode(uint64_t address, size_t bytes);
  void ExpandContext(PyObject* context);
  void TakeTensor(uint64_t address, uint16_t slot);
  void TakeGraphNode(uint64_t address, uint16_t slot);
  void TakeStorage(uint64_t address);
  void TakeHooks(uint64_t vector);
  void TakeHook(uint64_t address);
  bool Alive(uint64_t word, NativeClass wanted) const;
  bool LooksSaved(const uint64_t* words, size_t left) const;
  void ScanSaved(uint64_t begin, size_t bytes, bool vectors);
  bool IsArrayBlock(uint64_t begin, uint64_t limit) const;
  void ScanSavedArray(uint64_t begin, uint64_t end);

  struct Pending {
    NodeId node = 0;
    std::vector<PyObject*> slots, others;
  };

  Census& c_;
  bool scoped_;
  TypeTable types_;
  NodeId current_ = 0;
  uint32_t ordinal_ = 0;
  PyObject* weak_[4] = {};
  std::vector<bool> weak_seen_;
  std::vector<NodeId> weak_targets_;
  std::vector<StackWord> stack_;
  std::vector<Pending> pending_frames_;
  std::unordered_map<NodeId, uint32_t> frame_of_node_;
};

}  // namespace lowtide::walk
