#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace lowtide::python {

// Adds `Marked(original, before, after)` to the module: see track_marked.cc. 0, or -1 with an exception set.
int AddMarkedType(PyObject* module);

// Adds MarkState, GuardState, Watch and Gate: see track_gates.cc. 0, or -1 with an exception set.
int AddGateTypes(PyObject* module);

// See track_later.cc.
PyObject* CallLater(PyObject*, PyObject* const* args, Py_ssize_t count);
PyObject* CancelLater(PyObject*, PyObject*);

// Whether this is the process's first thread.
bool InMainThread();

// The first thread begins to wait for other ranks, in what `name` says; of other threads nothing is recorded.
void BeginWait(PyObject* name);

}  // namespace lowtide::python
