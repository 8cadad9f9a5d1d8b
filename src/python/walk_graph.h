#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heap/address_map.h"
#include "heap/dominators.h"
#include "heap/graph.h"
#include "python/walk_cpython.h"
#include "python/walk_native.h"

namespace lowtide::walk {

using heap::Kind;
using heap::NodeId;

// Edges that no slot of Python's stands for.
enum NativeSlot : uint16_t {
  kSlotNative = 0xff00,
  kSlotStorage = kSlotNative,
  kSlotGrad,
  kSlotGradFn,
  kSlotBase,      // the tensor that a view looks into
  kSlotSaved,     // a tensor that a graph node keeps for backward
  kSlotNext,      // graph node -> the graph node of its input
  kSlotVariable,  // AccumulateGrad -> the leaf
  kSlotHook,
  kSlotContext,  // graph node -> the ctx of a custom Function
  kSlotOther,
};

// Census::device of storages that are on no accelerator.
inline constexpr int16_t kHost = -1, kShared = -2;

enum class Origin : uint8_t { kPython, kFrame, kNative };

// Where PyTorch keeps what cannot be told by run-time types; learnt from tensors of known contents.
// 0: not learnt (no PyTorch, or another layout), and then that part of the walk is left out.
struct TorchLayout {
  PyTypeObject* tensor_type = nullptr;
  PyTypeObject* storage_type = nullptr;
  PyTypeObject* function_type = nullptr;  // base of the ctx objects of custom Functions
  traverseproc graph_traverse = nullptr;  // of the Python objects that stand for graph nodes
  size_t tensor_impl = 0;                 // in the Python tensor
  size_t storage_impl = 0;                // in the Python storage
  size_t graph_node = 0;                  // in the Python object of a graph node
  size_t storage_bytes = 0;
  size_t next_edges = 0, edge_stride = 0;
  size_t impl_storage = 0, impl_meta = 0;  // in TensorImpl
  size_t impl_bytes = 0;                   // of a plain TensorImpl
  size_t meta_grad = 0, meta_grad_fn = 0, meta_base = 0;
  size_t node_bytes = 0;                       // of the part that all graph nodes have
  size_t saved_flags = 0;                      // in SavedVariable
  std::vector<size_t> meta_hooks, node_hooks;  // vectors of hooks
  size_t meta_post_hook = 0;
  bool counted_nodes = false;  // graph nodes keep their count of owners as tensors do (PyTorch 2.13 on)
};

struct FrameInfo {
  PyCodeObject* code = nullptr;
  unsigned long thread = 0;
  int depth = 0, line = 0;
  uint64_t address = 0;
  const void* object = nullptr;  // its frame object, if one was made by then: another call has another one
};

// A walked process: the graph, and what each node was.
struct Census {
  heap::ObjectGraph graph;
  heap::DominatorTree tree;
  heap::AddressMap map;
  heap::Array<uint64_t> address;
  heap::Array<uint32_t> type;  // number of a Python type, code object or native class; the same in all censuses
  heap::Array<Origin> origin;
  heap::Array<int16_t> device;       // of storages; one entry for each node, -1 for the host
  std::vector<FrameInfo> frames;     // Root::detail of kFrame and kStack roots
  std::vector<std::string> modules;  // Root::detail of kModule roots
  std::unique_ptr<heap::Reach> reach;  // what `tree` will be made of
  double build_seconds = 0, dominator_seconds = 0;
  size_t gc_objects = 0;

  PyObject* object(NodeId node) const { return reinterpret_cast<PyObject*>(address[node]); }
  uint64_t MemoryBytes() const;
};

// Numbers of types, kept over the life of the process so that two censuses can be compared.
uint32_t TypeNumber(const void* type);
const void* TypeOfNumber(uint32_t number);
// Python types that are never freed.
void NoteStaticType(uint32_t number);
bool IsStaticType(uint32_t number);

extern TorchLayout g_layout;
NativeReader& Reader();

// Walks the process and finds what reaches what. Needs the GIL; makes no Python object that the collector tracks,
// changes no reference count, and must be called with the collector off. `scoped`: only what running
// functions and the user's own modules reach, which is a small part of a process that has imported PyTorch.
void BuildCensus(Census* census, bool scoped);

// Fills in the tree of a census, once. Reads nothing but the census, which no other thread may use meanwhile.
void FindDominators(Census* census);

// Of the nodes that nothing reaches so far, those with more references than the walk found: C or C++ code
// holds them.
std::vector<NodeId> ForeignHeld(const Census& census, const heap::Reach& reach);

// The C++ object behind a node, 0 when it is Python's alone.
uint64_t NativeAddress(const Census& census, NodeId node);

}  // namespace lowtide::walk
