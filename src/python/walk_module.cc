// The extension module lowtide._walk: censuses of the process's objects. Used by lowtide._census alone.
#include "python/walk_module.h"

#include <malloc.h>

#include "heap/beside.h"
#include "python/walk_compare.h"
#include "python/walk_heap.h"

namespace lowtide::walk {
namespace {

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

// Reads the arguments of compare and compare_later; false with an exception set.
bool ReadComparison(PyObject* args, PyObject** before, long long* least, Py_ssize_t* most, int* scoped) {
  if (!PyArg_ParseTuple(args, "O!|Lnp", HeapType(), before, least, most, scoped)) return false;
  const char* why = LtUnsupported();
  if (why) PyErr_Format(PyExc_RuntimeError, "%s", why);
  return !why;
}

PyObject* CompareNow(PyObject*, PyObject* args) {
  PyObject* before = nullptr;
  long long least = 1;
  Py_ssize_t most = 64;
  int scoped = 0;
  if (!ReadComparison(args, &before, &least, &most, &scoped)) return nullptr;
  return Guarded([&]() -> PyObject* {
    CollectorOff off;
    Census& old = *reinterpret_cast<HeapObject*>(before)->census;
    heap::PathTree paths;
    heap::Beside prepared([&old, &paths] { Prepare(&old, &paths); });
    auto census = std::make_unique<Census>();
    BuildCensus(census.get(), scoped);
    prepared.Wait();
    Comparison comparison = Compare(old, paths, census.get(), least, static_cast<size_t>(most));
    PyObject* rows = CompareRows(census.get(), comparison, nullptr);
    old.map.Clear();
    census->map.Clear();
    if (!rows) return nullptr;
    PyObject* heap = NewHeap(std::move(census));
    return heap ? Py_BuildValue("(NN)", heap, rows) : nullptr;
  });
}

PyObject* CompareLater(PyObject*, PyObject* args) {
  PyObject* before = nullptr;
  long long least = 1;
  Py_ssize_t most = 64;
  int scoped = 0;
  if (!ReadComparison(args, &before, &least, &most, &scoped)) return nullptr;
  return Guarded([&] { return NewPending(before, least, static_cast<size_t>(most), scoped); });
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

PyObject* Variable(PyObject*, PyObject* args) {
  PyObject *frame = nullptr, *name = nullptr;
  if (!PyArg_ParseTuple(args, "O!U", &PyFrame_Type, &frame, &name)) return nullptr;
  PyObject* value = LtVariable(reinterpret_cast<PyFrameObject*>(frame), name);
  if (!value) Py_RETURN_NONE;
  return value;
}

PyObject* HeapInUse(PyObject*, PyObject*) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  const struct mallinfo2 now = mallinfo2();
  return PyLong_FromSize_t(now.uordblks + now.hblkhd);
#else
  return PyLong_FromLong(0);
#endif
}

PyMethodDef kMethods[] = {
    {"learn", LearnFrom, METH_O, "learn(probes) -> None, or what could not be learnt of PyTorch's layout."},
    {"heap_in_use", HeapInUse, METH_NOARGS,
     "heap_in_use() -> bytes of the C heap that are allocated; 0: cannot tell."},
    {"layout", Layout, METH_NOARGS, "layout() -> dict: the offsets learnt, 0 where not."},
    {"take", Take, METH_VARARGS,
     "take(scoped=False) -> Heap: a census of the process's objects, or of what running functions and the "
     "user's own "
     "modules reach."},
    {"compare", CompareNow, METH_VARARGS,
     "compare(before, least_bytes=1, most=64, scoped=False) -> (Heap, rows): a census now, and where bytes "
     "came in since `before`."},
    {"compare_later", CompareLater, METH_VARARGS,
     "compare_later(before, least_bytes=1, most=64, scoped=False) -> Pending: takes the census now, compares it "
     "while the program goes on, and tells what came of it by ready() and finish()."},
    {"paths", Paths, METH_VARARGS,
     "paths(object, most=8) -> list of paths, each a list of steps, shortest first."},
    {"variable", Variable, METH_VARARGS, "variable(frame, name) -> a running function's variable, or None."},
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
  return HeapType() && PendingType() ? PyModule_Create(&kModule) : nullptr;
}
