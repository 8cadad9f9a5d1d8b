#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

// What `_guard` is made of: each part adds its functions to the module.
namespace lowtide::python {

extern PyMethodDef kGradientMethods[];
extern PyMethodDef kCheckpointMethods[];

}  // namespace lowtide::python
