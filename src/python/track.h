#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace lowtide::python {

// Adds `Marked(original, before, after)` to the module: see track_marked.cc. 0, or -1 with an exception set.
int AddMarkedType(PyObject* module);

}  // namespace lowtide::python
