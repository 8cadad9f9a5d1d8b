#include "python/track_states.h"

#include <structmember.h>

#include <cstddef>

namespace lowtide::python {

PyTypeObject *mark_type = nullptr, *watch_type = nullptr, *guard_type = nullptr;

namespace {

PyMemberDef mark_members[] = {
    {"steps", T_ULONGLONG, offsetof(MarkState, steps), 0, nullptr},
    {"leader", T_ULONGLONG, offsetof(MarkState, leader), 0, nullptr},
    {"loader", T_ULONGLONG, offsetof(MarkState, loader), 0, nullptr},
    {"trained_loader", T_ULONGLONG, offsetof(MarkState, trained_loader), 0, nullptr},
    {"no_grad_step", T_ULONGLONG, offsetof(MarkState, no_grad_step), 0, nullptr},
    {"away", T_INT, offsetof(MarkState, away), 0, nullptr},
    {"open_blocks", T_INT, offsetof(MarkState, open_blocks), 0, nullptr},
    {"validating", T_BOOL, offsetof(MarkState, validating), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyMemberDef watch_members[] = {
    {"steps", T_ULONGLONG, offsetof(Watch, steps), 0, nullptr},
    {"wake", T_ULONGLONG, offsetof(Watch, wake), 0, nullptr},
    {"next_look", T_ULONGLONG, offsetof(Watch, next_look), 0, nullptr},
    {"open", T_BOOL, offsetof(Watch, open), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyMemberDef guard_members[] = {
    {"step", T_ULONGLONG, offsetof(GuardState, step), 0, nullptr},
    {"backwards", T_ULONGLONG, offsetof(GuardState, backwards), 0, nullptr},
    {"backwards_at_step", T_ULONGLONG, offsetof(GuardState, backwards_at_step), 0, nullptr},
    {"loss_next", T_ULONGLONG, offsetof(GuardState, loss_next), 0, nullptr},
    {"loss_every", T_UINT, offsetof(GuardState, loss_every), 0, nullptr},
    {"limit", T_DOUBLE, offsetof(GuardState, limit), 0, nullptr},
    {"alive", T_BOOL, offsetof(GuardState, alive), 0, nullptr},
    {"look", T_BOOL, offsetof(GuardState, look), 0, nullptr},
    {"force", T_BOOL, offsetof(GuardState, force), 0, nullptr},
    {"waiting", T_BOOL, offsetof(GuardState, waiting), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

// forget(optimizer's id): the optimizer is gone, its address may be another's soon.
PyObject* Forget(PyObject* object, PyObject* id) {
  auto* guard = reinterpret_cast<GuardState*>(object);
  const void* gone = PyLong_AsVoidPtr(id);
  if (gone == nullptr && PyErr_Occurred()) return nullptr;
  for (int i = 0; i < kCached; ++i) {
    if (guard->optimizers[i] != gone) continue;
    guard->optimizers[i] = nullptr;
    Py_CLEAR(guard->watches[i]);
  }
  Py_RETURN_NONE;
}

PyMethodDef guard_methods[] = {{"forget", &Forget, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};

int TraverseGuard(PyObject* object, visitproc visit, void* arg) {
  for (Watch* watch : reinterpret_cast<GuardState*>(object)->watches) Py_VISIT(watch);
  Py_VISIT(Py_TYPE(object));
  return 0;
}

int ClearGuard(PyObject* object) {
  for (Watch*& watch : reinterpret_cast<GuardState*>(object)->watches) Py_CLEAR(watch);
  return 0;
}

int TraversePlain(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  return 0;
}

constexpr unsigned kStateFlags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
PyType_Slot mark_slots[] = {{Py_tp_members, mark_members},
                            {Py_tp_traverse, reinterpret_cast<void*>(&TraversePlain)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(&DeallocObject)},
                            {0, nullptr}};
PyType_Slot watch_slots[] = {{Py_tp_members, watch_members},
                             {Py_tp_traverse, reinterpret_cast<void*>(&TraversePlain)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(&DeallocObject)},
                             {0, nullptr}};
PyType_Slot guard_slots[] = {{Py_tp_members, guard_members},
                             {Py_tp_methods, guard_methods},
                             {Py_tp_traverse, reinterpret_cast<void*>(&TraverseGuard)},
                             {Py_tp_clear, reinterpret_cast<void*>(&ClearGuard)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(&DeallocObject)},
                             {0, nullptr}};
PyType_Spec mark_spec = {"lowtide._track.MarkState", sizeof(MarkState), 0, kStateFlags, mark_slots};
PyType_Spec watch_spec = {"lowtide._track.Watch", sizeof(Watch), 0, kStateFlags, watch_slots};
PyType_Spec guard_spec = {"lowtide._track.GuardState", sizeof(GuardState), 0, kStateFlags, guard_slots};

}  // namespace

void DeallocObject(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (type->tp_clear != nullptr) type->tp_clear(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyTypeObject* AddType(PyObject* module, PyType_Spec* spec, const char* name) {
  PyObject* type = PyType_FromSpec(spec);
  if (type != nullptr && PyModule_AddObjectRef(module, name, type) != 0) Py_CLEAR(type);
  return reinterpret_cast<PyTypeObject*>(type);
}

int AddStateTypes(PyObject* module) {
  mark_type = AddType(module, &mark_spec, "MarkState");
  watch_type = AddType(module, &watch_spec, "Watch");
  guard_type = AddType(module, &guard_spec, "GuardState");
  return mark_type != nullptr && watch_type != nullptr && guard_type != nullptr ? 0 : -1;
}

}  // namespace lowtide::python
