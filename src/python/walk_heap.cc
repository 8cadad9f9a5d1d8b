// lowtide._walk.Heap
#include "python/walk_heap.h"

namespace lowtide::walk {
namespace {

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

PyMethodDef kHeapMethods[] = {{"info", HeapInfo, METH_NOARGS, "Counts, bytes and seconds of this census."},
                              {"settle", HeapSettle, METH_NOARGS,
                               "Finds dominators now rather than when this census is compared with."},
                              {nullptr, nullptr, 0, nullptr}};

PyType_Slot kHeapSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(HeapDealloc)}, {Py_tp_methods, kHeapMethods}, {0, nullptr}};
PyType_Spec kHeapSpec = {"lowtide._walk.Heap", sizeof(HeapObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kHeapSlots};

}  // namespace

PyTypeObject* HeapType() {
  static PyTypeObject* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kHeapSpec));
  return type;
}

PyObject* NewHeap(std::unique_ptr<Census> census) {
  HeapObject* heap = reinterpret_cast<HeapObject*>(HeapType()->tp_alloc(HeapType(), 0));
  if (heap) heap->census = census.release();
  return reinterpret_cast<PyObject*>(heap);
}

}  // namespace lowtide::walk
