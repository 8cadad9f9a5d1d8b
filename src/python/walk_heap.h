#pragma once

#include <exception>
#include <memory>
#include <new>

#include "python/walk_graph.h"

namespace lowtide::walk {

// lowtide._walk.Heap: a census as a Python object.
struct HeapObject {
  PyObject_HEAD Census* census;
};

// The types of the module; each makes its own once. nullptr with an exception set.
PyTypeObject* HeapType();
PyTypeObject* PendingType();  // walk_pending.cc

PyObject* NewHeap(std::unique_ptr<Census> census);

// Begins to compare `before` (a Heap) with a census taken now: a lowtide._walk.Pending.
PyObject* NewPending(PyObject* before, int64_t least_bytes, size_t most, bool scoped);

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

}  // namespace lowtide::walk
