// The extension module lowtide._walk: censuses of the process's objects. Used by lowtide._census alone.
#include "python/walk_module.h"

#include <malloc.h>

#include <exception>
#include <memory>
#include <new>

#include "heap/beside.h"
#include "heap/paths.h"

namespace lowtide::walk {
namespace {

struct HeapObject {
  PyObject_HEAD Census* census;
};

PyTypeObject* g_heap_type = nullptr;

void HeapDealloc(PyObject* self) {
  delete reinterpret_cast<HeapObject*>(self)->census;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* HeapInfo(PyObject* self, PyObject*) {
  const Census& c = *reinterpret_cast<HeapObject*>(self)->census;
  return Py_BuildValue("{s:n,s:n,s:n,s:n,s:n,s:d,s:d}", "objects", static_cast<Py_ssize_t>(c.graph.size()),
                       "gc_objects", static_cast<Py_ssize_t>(c.gc_objects), "reached",
                       static_cast<Py_ssize_t>(c.reach ? c.reach->Count() : c.tree.order.size()), "references",
                       static_cast<Py_ssize_t>(c.graph.to.size()), "memory_bytes",
                       static_cast<Py_ssize_t>(c.MemoryBytes()), "build_seconds", c.build_seconds,
                       "dominator_seconds", c.dominator_seconds);
}

PyObject* HeapSettle(PyObject* self, PyObject*) {
  try {
    FindDominators(reinterpret_cast<HeapObject*>(self)->census);
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
  Py_RETURN_NONE;
}

// Turns the collector off for as long as a census takes, and back to what it was.
class CollectorOff {
 public:
  CollectorOff() : was_on_(PyGC_Disable()) {}
  ~CollectorOff() {
    if (was_on_) PyGC_Enable();
  }

 private:
  int was_on_;
};

PyObject* NewHeap(std::unique_ptr<Census> census) {
  HeapObject* heap = reinterpret_cast<HeapObject*>(g_heap_type->tp_alloc(g_heap_type, 0));
  if (heap) heap->census = census.release();
  return reinterpret_cast<PyObject*>(heap);
}

// C++ exceptions (only lack of memory can cause one) end here.
template <typename Function>
PyObject* Guarded(Function function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

PyObject* Take(PyObject*, PyObject* args) {
  int scoped = 0;
  if (!PyArg_ParseTuple(args, "|p", &scoped)) return nullptr;
  if (const char* why = LtUnsupported()) return PyErr_Format(PyExc_RuntimeError, "%s", why);
  return Guarded([&] {
    CollectorOff off;
    auto census = std::make_unique<Census>();
    BuildCensus(census.get(), scoped);
    census->map.Clear();  // a fifth of a census's memory, and quickly made again
    return NewHeap(std::move(census));
  });
}

PyObject* Compare(PyObject*, PyObject* args) {
  PyObject* before = nullptr;
  long long least = 1;
  Py_ssize_t most = 64;
  int scoped = 0;
  if (!PyArg_ParseTuple(args, "O!|Lnp", g_heap_type, &before, &least, &most, &scoped)) return nullptr;
  if (const char* why = LtUnsupported()) return PyErr_Format(PyExc_RuntimeError, "%s", why);
  return Guarded([&]() -> PyObject* {
    CollectorOff off;
    Census& old = *reinterpret_cast<HeapObject*>(before)->census;
    heap::PathTree paths;
    heap::Beside prepared([&old, &paths] {
      FindDominators(&old);
      old.map.Fill(old.address);
      paths = heap::ShortestPaths(old.graph);
    });
    auto census = std::make_unique<Census>();
    BuildCensus(census.get(), scoped);
    prepared.Wait();
    PyObject* rows = CompareRows(old, paths, census.get(), least, static_cast<size_t>(most));
    old.map.Clear();
    census->map.Clear();
    if (!rows) return nullptr;
    PyObject* heap = NewHeap(std::move(census));
    return heap ? Py_BuildValue("(NN)", heap, rows) : nullptr;
  });
}

PyObject* Paths(PyObject*, PyObject* args) {
  PyObject* object = nullptr;
  Py_ssize_t most = 8;
  if (!PyArg_ParseTuple(args, "O|n", &object, &most)) return nullptr;
  if (const char* why = LtUnsupported()) return PyErr_Format(PyExc_RuntimeError, "%s", why);
  return Guarded([&] {
    CollectorOff off;
    Census census;
    BuildCensus(&census, false);
    return PathRows(census, object, static_cast<size_t>(most));
  });
}

PyObject* LearnFrom(PyObject*, PyObject* probes) {
  if (!PyDict_Check(probes)) return PyErr_Format(PyExc_TypeError, "a dict of probes is needed");
  const char* why = Learn(probes);
  if (!why) Py_RETURN_NONE;
  return PyUnicode_FromString(why);
}

PyObject* Layout(PyObject*, PyObject*) {
  const TorchLayout& l = g_layout;
  return Py_BuildValue(
      "{s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n}", "tensor_impl", l.tensor_impl,
      "storage_impl", l.storage_impl, "graph_node", l.graph_node, "storage_bytes", l.storage_bytes,
      "next_edges", l.next_edges, "edge_stride", l.edge_stride, "impl_storage", l.impl_storage, "impl_meta",
      l.impl_meta, "impl_bytes", l.impl_bytes, "meta_grad", l.meta_grad, "meta_grad_fn", l.meta_grad_fn,
      "meta_base", l.meta_base, "node_bytes", l.node_bytes, "saved_flags", l.saved_flags, "meta_hooks",
      l.meta_hooks.size(), "node_hooks", l.node_hooks.size(), "meta_post_hook", l.meta_post_hook);
}

PyObject* HeapInUse(PyObject*, PyObject*) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  const struct mallinfo2 now = mallinfo2();
  return PyLong_FromSize_t(now.uordblks + now.hblkhd);
#else
  return PyLong_FromLong(0);
#endif
}

PyMethodDef kHeapMethods[] = {{"info", HeapInfo, METH_NOARGS, "Counts, bytes and seconds of this census."},
                              {"settle", HeapSettle, METH_NOARGS,
                               "Finds dominators now rather than when this census is compared with."},
                              {nullptr, nullptr, 0, nullptr}};

PyType_Slot kHeapSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(HeapDealloc)}, {Py_tp_methods, kHeapMethods}, {0, nullptr}};
PyType_Spec kHeapSpec = {"lowtide._walk.Heap", sizeof(HeapObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kHeapSlots};

PyMethodDef kMethods[] = {
    {"learn", LearnFrom, METH_O, "learn(probes) -> None, or what could not be learnt of PyTorch's layout."},
    {"heap_in_use", HeapInUse, METH_NOARGS,
     "heap_in_use() -> bytes of the C heap that are allocated; 0: cannot tell."},
    {"layout", Layout, METH_NOARGS, "layout() -> dict: the offsets learnt, 0 where not."},
    {"take", Take, METH_VARARGS,
     "take(scoped=False) -> Heap: a census of the process's objects, or of what running functions and the "
     "user's own "
     "modules reach."},
    {"compare", Compare, METH_VARARGS,
     "compare(before, least_bytes=1, most=64, scoped=False) -> (Heap, rows): a census now, and where bytes "
     "came in since `before`."},
    {"paths", Paths, METH_VARARGS,
     "paths(object, most=8) -> list of paths, each a list of steps, shortest first."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef kModule = {PyModuleDef_HEAD_INIT,
                       "_walk",
                       "Censuses of the process's objects.",
                       -1,
                       kMethods,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};

}  // namespace
}  // namespace lowtide::walk

PyMODINIT_FUNC PyInit__walk() {
  using namespace lowtide::walk;
  if (const char* why = LtUnsupported()) return PyErr_Format(PyExc_ImportError, "%s", why);
  g_heap_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kHeapSpec));
  return g_heap_type ? PyModule_Create(&kModule) : nullptr;
}
