// PyTorch's half of the object walk: tensors, storages and the autograd graph as nodes of their own.
// Fields at learnt offsets are followed as they are; only what a graph node saves, whose layout differs from
// class to class, is looked for among the words of the object, and there every pointer is checked before it
// is followed.
#include <algorithm>
#include <cstring>

#include "python/walk_builder.h"

namespace lowtide::walk {
namespace {

constexpr size_t kUnknownBlock = 192;  // of an object whose allocator does not tell its size

uint64_t TableAt(uint64_t address) {
  uint64_t table = 0;
  return address && Reader().Read(address, &table, sizeof table) ? table : 0;
}

const NativeType& TypeAt(uint64_t address) { return Reader().TypeOf(TableAt(address)); }

}  // namespace

uint64_t NativeOf(PyObject* object, TypeInfo::Special special) {
  switch (special) {
    case TypeInfo::Special::kTensor:
      return g_layout.tensor_impl ? WordAt(object, g_layout.tensor_impl) : 0;
    case TypeInfo::Special::kStorage:
      return g_layout.storage_impl ? WordAt(object, g_layout.storage_impl) : 0;
    case TypeInfo::Special::kGraphNode:
      return g_layout.graph_node ? WordAt(object, g_layout.graph_node) : 0;
    default:
      return 0;
  }
}

NodeId Builder::AdoptNative(uint64_t address, uint64_t vtable, Kind kind) {
  const NodeId next = static_cast<NodeId>(c_.address.size());
  const NodeId node = c_.map.Insert(address, next);
  if (node != next) return node;
  NewNode(address, TypeNumber(reinterpret_cast<const void*>(vtable)), kind, Origin::kNative);
  // The struct of a storage is host memory, its contents may be elsewhere: book the struct with who found it.
  if (kind == Kind::kStorage) c_.graph.bytes[current_] += Reader().BlockBytes(address);
  return node;
}

void Builder::ExpandNative(NodeId node, uint64_t address) {
  const Kind kind = c_.graph.kind[node];
  // What was taken for an object may be memory that was freed and has been used anew since.
  if (c_.origin[node] == Origin::kNative &&
      TableAt(address) != reinterpret_cast<uint64_t>(TypeOfNumber(c_.type[node]))) {
    return;
  }
  if (kind == Kind::kStorage) {
    if (!g_layout.storage_bytes) return;
    // StorageImpl: DataPtr {data, context and its deleter, device type and index}, then the byte count.
    const uint64_t data = WordAt(address, g_layout.storage_bytes - 32);
    const uint64_t bytes = WordAt(address, g_layout.storage_bytes);
    int8_t device[2];
    std::memcpy(device, reinterpret_cast<char*>(address) + g_layout.storage_bytes - 8, 2);
    const bool shared = device[0] == 0 && Reader().Shared(data);
    c_.device[node] = shared ? kShared : device[0] == 0 ? kHost : std::max<int16_t>(0, device[1]);
    c_.graph.bytes[node] += shared ? (bytes + 4095) & ~4095ull : bytes;  // shared memory comes in whole pages
    return;
  }
  const size_t block = Reader().BlockBytes(address);
  c_.graph.bytes[node] += block ? block + 8 : kUnknownBlock;
  if (kind == Kind::kTensor)
    ExpandTensor(address, block);
  else
    ExpandGraphNode(address, block ? block : kUnknownBlock);
}

void Builder::ExpandTensor(uint64_t address, size_t bytes) {
  if (!g_layout.impl_storage) return;
  TakeStorage(WordAt(address, g_layout.impl_storage));
  if (g_layout.impl_meta) {
    const uint64_t meta = WordAt(address, g_layout.impl_meta);
    if (meta && TypeAt(meta).kind == NativeClass::kMeta) ExpandMeta(meta);
  }
  // Sparse and wrapper tensors: the tensors that they consist of stand behind the members of the base class.
  for (size_t at = g_layout.impl_bytes; at + 8 <= bytes; at += 8) {
    const uint64_t word = WordAt(address, at);
    if (Alive(word, NativeClass::kTensor)) TakeTensor(word, kSlotOther);
  }
}

void Builder::ExpandMeta(uint64_t meta) {
  const size_t block = Reader().BlockBytes(meta);
  c_.graph.bytes[current_] += block + 8;
  if (!g_layout.meta_grad_fn) return;
  TakeTensor(WordAt(meta, g_layout.meta_grad), kSlotGrad);
  TakeGraphNode(WordAt(meta, g_layout.meta_grad_fn), kSlotGradFn);
  if (g_layout.meta_base && TypeAt(meta).view) {
    const uint64_t base = WordAt(meta, g_layout.meta_base);
    if (Alive(base, NativeClass::kTensor)) TakeTensor(base, kSlotBase);
  }
  for (size_t at : g_layout.meta_hooks) TakeHooks(meta + at);
  if (g_layout.meta_post_hook) TakeHook(WordAt(meta, g_layout.meta_post_hook));
}

void Builder::ExpandGraphNode(uint64_t address, size_t bytes) {
  if (!g_layout.next_edges || !g_layout.node_bytes) return;
  const uint64_t begin = WordAt(address, g_layout.next_edges), end = WordAt(address, g_layout.next_edges + 8);
  for (uint64_t edge = begin; edge + g_layout.edge_stride <= end; edge += g_layout.edge_stride) {
    TakeGraphNode(WordAt(edge, 0), kSlotNext);
  }
  if (begin != end) c_.graph.bytes[current_] += Reader().BlockBytes(begin) + 8;
  for (size_t at : g_layout.node_hooks) TakeHooks(address + at);
  if (bytes <= g_layout.node_bytes) return;
  const NativeType& type = TypeAt(address);
  if (type.accumulate_grad) {
    TakeTensor(WordAt(address, g_layout.node_bytes), kSlotVariable);
    return;
  }
  ScanSaved(address + g_layout.node_bytes, bytes - g_layout.node_bytes, true);
  for (size_t at = g_layout.node_bytes; at + 8 <= bytes; at += 8) {
    const uint64_t word = WordAt(address, at);
    if (type.copy_slices && Alive(word, NativeClass::kAutograd)) TakeGraphNode(word, kSlotNext);
  }
  // A custom Function's node owns its ctx, which is a Python object; where it keeps it has changed over the
  // versions.
  for (size_t at = 8; type.python_node && at + 8 <= bytes; at += 8) {
    const NodeId known = c_.map.Find(WordAt(address, at));
    if (known == heap::kNone || c_.origin[known] != Origin::kPython) continue;
    if (c_.graph.kind[known] != Kind::kAutograd || NativeAddress(c_, known)) continue;
    AddEdge(known, kSlotContext);
    break;
  }
}

void Builder::ExpandContext(PyObject* context) {
  const uint64_t begin = reinterpret_cast<uint64_t>(context);
  const size_t bytes = static_cast<size_t>(Py_TYPE(context)->tp_basicsize);
  ScanSaved(begin + sizeof(PyObject), bytes - sizeof(PyObject), true);
  for (size_t at = sizeof(PyObject); at + 8 <= bytes; at += 8) {
    const uint64_t word = WordAt(begin, at);
    if (Alive(word, NativeClass::kAutograd)) TakeGraphNode(word, kSlotGradFn);
  }
}

// Does a word that may be anything point to a living object of that class? Freed memory keeps the virtual
// table for a while, but not the count of owners.
bool Builder::Alive(uint64_t word, NativeClass wanted) const {
  uint64_t head[2];
  if (!Reader().Plausible(word) || !Reader().Read(word, head, sizeof head)) return false;
  const uint32_t owners = static_cast<uint32_t>(head[1]);
  if (Reader().TypeOf(head[0]).kind != wanted) return false;
  if (wanted == NativeClass::kTensor && Reader().BlockBytes(word) < g_layout.impl_bytes) return false;
  return g_layout.counted_nodes || wanted != NativeClass::kAutograd ? owners >= 1 && owners < 1u << 24 : true;
}

void Builder::TakeTensor(uint64_t address, uint16_t slot) {
  if (!address) return;
  const NodeId known = c_.map.Find(address);
  if (known != heap::kNone) {
    if (c_.graph.kind[known] == Kind::kTensor) AddEdge(known, slot);
    return;
  }
  const uint64_t table = TableAt(address);
  if (Reader().TypeOf(table).kind == NativeClass::kTensor)
    AddEdge(AdoptNative(address, table, Kind::kTensor), slot);
}

void Builder::TakeGraphNode(uint64_t address, uint16_t slot) {
  if (!address) return;
  const NodeId known = c_.map.Find(address);
  if (known != heap::kNone) {
    if (c_.graph.kind[known] == Kind::kAutograd) AddEdge(known, slot);
    return;
  }
  const uint64_t table = TableAt(address);
  if (Reader().TypeOf(table).kind == NativeClass::kAutograd)
    AddEdge(AdoptNative(address, table, Kind::kAutograd), slot);
}

void Builder::TakeStorage(uint64_t address) {
  if (!address) return;
  const NodeId known = c_.map.Find(address);
  if (known != heap::kNone) {
    if (c_.graph.kind[known] == Kind::kStorage) AddEdge(known, kSlotStorage);
    return;
  }
  const uint64_t table = TableAt(address);
  if (Reader().TypeOf(table).kind == NativeClass::kStorage) {
    AddEdge(AdoptNative(address, table, Kind::kStorage), kSlotStorage);
  }
}

// A vector of hooks.
void Builder::TakeHooks(uint64_t vector) {
  const uint64_t begin = WordAt(vector, 0), end = WordAt(vector, 8);
  for (uint64_t at = begin; at + 8 <= end && end - begin <= 4096; at += 8) TakeHook(WordAt(at, 0));
}

// The Python objects of a hook.
void Builder::TakeHook(uint64_t address) {
  if (!address || TypeAt(address).kind != NativeClass::kPyHolder) return;
  const size_t bytes = std::min<size_t>(Reader().BlockBytes(address), 128);
  for (size_t at = 8; at + 8 <= bytes; at += 8) {
    const NodeId node = c_.map.Find(WordAt(address, at));
    if (node != heap::kNone && c_.origin[node] == Origin::kPython) AddEdge(node, kSlotHook);
  }
}

// Is this the beginning of a SavedVariable that holds something? Its members are {tensor, ..., version and
// output number, five flags, hooks, ...}. The flags are: never filled, in place on a view, saved whole, a
// leaf, an output; what was filled was saved whole or is an output.
bool Builder::LooksSaved(const uint64_t* words, size_t left) const {
  const size_t flags_at = g_layout.saved_flags;
  if (left * 8 < flags_at + 16) return false;
  uint8_t flags[8];
  uint32_t version, output;
  const char* base = reinterpret_cast<const char*>(words);
  std::memcpy(flags, base + flags_at, 8);
  std::memcpy(&version, base + flags_at - 8, 4);
  std::memcpy(&output, base + flags_at - 4, 4);
  return flags[0] == 0 && flags[1] <= 1 && flags[2] <= 1 && flags[3] <= 1 && flags[4] <= 1 &&
         (flags[2] | flags[4]) && version < 1u << 30 && output < 1u << 16;
}

// Is [begin, limit) the whole of one block? Three members in a row whose addresses happen to rise, left over
// from what a backward gave back, are no vector: between them lies memory of others.
bool Builder::IsArrayBlock(uint64_t begin, uint64_t limit) const {
  const size_t block = Reader().BlockBytes(begin);
  return block >= limit - begin && block < limit - begin + 64;
}

// Takes what a graph node saves for backward: looks among the words of [begin, begin + bytes) for
// SavedVariables, and in the arrays of vectors that stand there. What each class of graph nodes saves, and
// where, differs; some members are never initialized, so a word alone proves nothing.
void Builder::ScanSaved(uint64_t begin, size_t bytes, bool vectors) {
  if (!g_layout.saved_flags) return;
  const size_t count = std::min<size_t>(bytes, 1 << 16) / 8;
  const uint64_t* words = reinterpret_cast<const uint64_t*>(begin);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t word = words[i];
    if (word && !Reader().Plausible(word)) continue;
    if (LooksSaved(words + i, count - i)) {
      const uint64_t hooks = WordAt(begin, i * 8 + g_layout.saved_flags + 8);
      uint64_t table = 0;
      if (word) {
        const NodeId known = c_.map.Find(word);
        const bool tensor =
            known != heap::kNone ? c_.graph.kind[known] == Kind::kTensor : Alive(word, NativeClass::kTensor);
        if (tensor) TakeTensor(word, kSlotSaved);
      } else if (Reader().Plausible(hooks) && Reader().Read(hooks, &table, 8) &&
                 Reader().TypeOf(table).kind == NativeClass::kPyHolder) {
        TakeHook(hooks);
      }
    }
    if (!vectors || !word || i + 2 >= count) continue;
    const uint64_t end = words[i + 1], limit = words[i + 2];
    if (end > word && limit >= end && limit - word <= 1 << 20 && (end - word) % 8 == 0 &&
        IsArrayBlock(word, limit))
      ScanSavedArray(word, end);
  }
}

void Builder::ScanSavedArray(uint64_t begin, uint64_t end) {
  std::vector<uint64_t> copy((end - begin) / 8);
  if (!Reader().Read(begin, copy.data(), copy.size() * 8)) return;
  const size_t block = Reader().BlockBytes(begin);
  c_.graph.bytes[current_] += block + 8;
  ScanSaved(reinterpret_cast<uint64_t>(copy.data()), copy.size() * 8, false);
}

}  // namespace lowtide::walk
