// The extension module _guard: gradients and checkpoints of a running training script.
#include <initializer_list>

#include "python/guard.h"

namespace lowtide::python {
namespace {

int Fill(PyObject* module) {
  for (PyMethodDef* methods : {kGradientMethods, kCheckpointMethods}) {
    if (PyModule_AddFunctions(module, methods) < 0) return -1;
  }
  return 0;
}

PyModuleDef_Slot kSlots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(Fill)},
    {0, nullptr},
};

PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT, "_guard", "lowtide's native half of gradients and checkpoints", 0, nullptr, kSlots,
    nullptr, nullptr, nullptr,
};

}  // namespace
}  // namespace lowtide::python

PyMODINIT_FUNC PyInit__guard() { return PyModuleDef_Init(&lowtide::python::kModule); }
