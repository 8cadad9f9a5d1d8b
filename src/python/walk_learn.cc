#include <cstring>

#include "python/walk_module.h"

namespace lowtide::walk {
namespace {

uint64_t Word(uint64_t base, size_t offset) {
  uint64_t word = 0;
  Reader().Read(base + offset, &word, sizeof word);
  return word;
}

// Offset of the first word equal to `wanted` in [from, bytes) of the memory at `base`; 0: none.
size_t FindWord(uint64_t base, size_t from, size_t bytes, uint64_t wanted) {
  for (size_t at = from; wanted && at + 8 <= bytes; at += 8) {
    if (Word(base, at) == wanted) return at;
  }
  return 0;
}

uint64_t Address(PyObject* object) { return reinterpret_cast<uint64_t>(object); }

size_t BodyOf(PyObject* object) { return static_cast<size_t>(Py_TYPE(object)->tp_basicsize); }

NativeClass ClassAt(uint64_t address) {
  return Reader().Plausible(address) ? Reader().TypeOf(Word(address, 0)).kind : NativeClass::kNone;
}

size_t FindClass(uint64_t base, size_t from, size_t bytes, NativeClass wanted) {
  for (size_t at = from; at + 8 <= bytes; at += 8) {
    if (ClassAt(Word(base, at)) == wanted) return at;
  }
  return 0;
}

PyObject* Get(PyObject* probes, const char* name) { return PyDict_GetItemString(probes, name); }

uint64_t Number(PyObject* probes, const char* name) {
  PyObject* value = Get(probes, name);
  const unsigned long long number = value ? PyLong_AsUnsignedLongLong(value) : 0;
  if (PyErr_Occurred()) PyErr_Clear();
  return number;
}

PyTypeObject* Type(PyObject* probes, const char* name) {
  PyObject* value = Get(probes, name);
  return value && PyType_Check(value) ? reinterpret_cast<PyTypeObject*>(value) : nullptr;
}

// Tensor and storage, from one of known size each.
bool LearnTensors(PyObject* probes, TorchLayout* layout) {
  PyObject* tensor = Get(probes, "tensor");
  PyObject* storage = Get(probes, "storage");
  if (!tensor || !storage) return false;
  const uint64_t impl = Number(probes, "tensor_impl"), storage_impl = Number(probes, "storage_impl");
  layout->tensor_impl = FindWord(Address(tensor), sizeof(PyObject), BodyOf(tensor), impl);
  layout->storage_impl = FindWord(Address(storage), sizeof(PyObject), BodyOf(storage), storage_impl);
  if (ClassAt(impl) != NativeClass::kTensor || ClassAt(storage_impl) != NativeClass::kStorage) return false;
  const uint64_t other = Number(probes, "other_storage_impl");
  const uint64_t bytes = Number(probes, "bytes"), other_bytes = Number(probes, "other_bytes");
  for (size_t at = 8; at < 128 && !layout->storage_bytes; at += 8) {
    if (Word(storage_impl, at) == bytes && Word(other, at) == other_bytes) layout->storage_bytes = at;
  }
  layout->impl_storage = FindWord(impl, 8, Reader().BlockBytes(impl), storage_impl);
  layout->impl_bytes = Reader().BlockBytes(impl);
  return layout->tensor_impl && layout->storage_impl && layout->storage_bytes && layout->impl_storage;
}

// Where a tensor keeps its gradient, its graph node and the base of a view.
bool LearnMeta(PyObject* probes, uint64_t node, TorchLayout* layout) {
  const uint64_t result = Number(probes, "result_impl"), leaf = Number(probes, "leaf_impl");
  const uint64_t view = Number(probes, "view_impl");
  layout->impl_meta = FindClass(result, 8, Reader().BlockBytes(result), NativeClass::kMeta);
  if (!layout->impl_meta) return false;
  const uint64_t meta = Word(result, layout->impl_meta), leaf_meta = Word(leaf, layout->impl_meta);
  const uint64_t view_meta = Word(view, layout->impl_meta);
  layout->meta_grad_fn = FindWord(meta, 8, Reader().BlockBytes(meta), node);
  layout->meta_grad = FindWord(leaf_meta, 8, Reader().BlockBytes(leaf_meta), Number(probes, "grad_impl"));
  layout->meta_base = FindWord(view_meta, 8, Reader().BlockBytes(view_meta), result);
  return layout->meta_grad_fn && layout->meta_grad && layout->meta_base;
}

// Vectors of hooks in [8, bytes) of the object at `base`.
std::vector<size_t> FindHookVectors(uint64_t base, size_t bytes) {
  std::vector<size_t> found;
  for (size_t at = 8; at + 24 <= bytes; at += 8) {
    const uint64_t begin = Word(base, at), end = Word(base, at + 8);
    if (Reader().Plausible(begin) && end > begin && end - begin <= 64 &&
        ClassAt(Word(begin, 0)) == NativeClass::kPyHolder) {
      found.push_back(at);
    }
  }
  return found;
}

// Hooks, from a tensor and graph nodes that have one of each kind. None found is no failure: they are rare.
void LearnHooks(PyObject* probes, TorchLayout* layout) {
  const uint64_t leaf = Number(probes, "hooked_impl");
  const uint64_t meta = leaf ? Word(leaf, layout->impl_meta) : 0;
  if (meta) {
    layout->meta_hooks = FindHookVectors(meta, Reader().BlockBytes(meta));
    layout->meta_post_hook = FindClass(meta, 8, Reader().BlockBytes(meta), NativeClass::kPyHolder);
  }
  if (PyObject* wrapper = Get(probes, "hooked_node")) {
    layout->node_hooks = FindHookVectors(Word(Address(wrapper), layout->graph_node), layout->node_bytes);
  }
}

// Where a SavedVariable keeps its flags, from c = a * d, which saves the leaves a and d as they are.
bool LearnSaved(PyObject* probes, uint64_t node, TorchLayout* layout) {
  const size_t bytes = Reader().BlockBytes(node);
  const size_t at = FindWord(node, layout->node_bytes, bytes, Number(probes, "left_impl"));
  if (!at) return false;
  // Of its five flags (never filled, in place on a view, saved whole, a leaf, an output) two are set.
  for (size_t flags = 16; flags <= 72 && at + flags + 8 <= bytes; flags += 8) {
    const uint64_t word = Word(node, at + flags);
    const bool here = (word & 0xff) == 0 && (word >> 8 & 0xff) == 0 && (word >> 16 & 0xff) == 1 &&
                      (word >> 24 & 0xff) == 1 && (word >> 32 & 0xff) == 0;
    if (!here) continue;
    layout->saved_flags = flags;
    return true;
  }
  return false;
}

// Where a graph node keeps its inputs, from c = a * d: the edges lead to the accumulators of a and d.
bool LearnGraph(PyObject* probes, TorchLayout* layout) {
  PyObject* wrapper = Get(probes, "grad_fn");
  PyObject* first = Get(probes, "next0");
  PyObject* second = Get(probes, "next1");
  if (!wrapper || !first || !second) return false;
  layout->graph_node = FindClass(Address(wrapper), sizeof(PyObject), BodyOf(wrapper), NativeClass::kAutograd);
  if (!layout->graph_node) return false;
  const uint64_t node = Word(Address(wrapper), layout->graph_node);
  const uint64_t input0 = Word(Address(first), layout->graph_node),
                 input1 = Word(Address(second), layout->graph_node);
  const size_t bytes = Reader().BlockBytes(node);
  for (size_t at = 8; at + 24 <= bytes && !layout->next_edges; at += 8) {
    const uint64_t begin = Word(node, at), end = Word(node, at + 8);
    if (end <= begin || end - begin > 64 || Word(begin, 0) != input0) continue;
    layout->edge_stride = FindWord(begin, 8, end - begin, input1);
    if (layout->edge_stride) layout->next_edges = at;
  }
  // The leaf is the first thing that AccumulateGrad adds to what all graph nodes have.
  layout->node_bytes = FindWord(input0, 8, Reader().BlockBytes(input0), Number(probes, "left_impl"));
  layout->graph_traverse = Py_TYPE(wrapper)->tp_traverse;
  if (!layout->next_edges || !layout->node_bytes || !LearnMeta(probes, node, layout)) return false;
  LearnHooks(probes, layout);
  // A node that one Python object and one tensor refer to: is that what stands where tensors keep their
  // count?
  const uint32_t owners = static_cast<uint32_t>(Word(node, 8));
  layout->counted_nodes = owners >= 1 && owners <= 4;
  return LearnSaved(probes, node, layout);
}

}  // namespace

const char* Learn(PyObject* probes) {
  g_layout = TorchLayout();
  TorchLayout layout;
  if (!Reader().Refresh()) return "/proc/self/maps cannot be read";
  uint64_t self = 0, probe = 0x6c6f77746964ull;
  if (!Reader().Read(Address(reinterpret_cast<PyObject*>(&probe)), &self, sizeof self) || self != probe) {
    return "process_vm_readv is not permitted here";
  }
  layout.tensor_type = Type(probes, "tensor_type");
  layout.storage_type = Type(probes, "storage_type");
  layout.function_type = Type(probes, "function_type");
  if (!LearnTensors(probes, &layout)) return "tensors of this PyTorch are laid out in an unknown way";
  g_layout = layout;
  if (!LearnGraph(probes, &layout)) return "the autograd graph of this PyTorch is laid out in an unknown way";
  g_layout = layout;
  return nullptr;
}

}  // namespace lowtide::walk
