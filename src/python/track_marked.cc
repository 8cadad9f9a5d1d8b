// Marked(original, before, after): a callable that stands in for a function of PyTorch and tells lowtide when it is
// called. In C, so that no frame of lowtide shows in the user's tracebacks; in every other respect it looks like the
// original (attributes, signature, binding to instances).
//   before(*args) -> token     or None
//   after(token, ok, *args)    ok: the original returned; also called when it raised
// What goes wrong in `before` and `after` is swallowed and counted, but what is no Exception: SystemExit, which ends the
// script, and KeyboardInterrupt, which is the user's.
#include "python/track.h"

#include <structmember.h>

#include <cstddef>
#include <initializer_list>

#include "record/recorder.h"

namespace lowtide::python {
namespace {

struct Marked {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject *original, *before, *after;
};

constexpr Py_ssize_t kMostArgs = 8;  // that before and after are shown

// Forgets an error of lowtide's own. True when the script is to end.
bool Swallow() {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return true;
  PyErr_Clear();
  record::Recorder::Get().LoseMark();
  return false;
}

// False when the script is to end: SystemExit is set then.
bool CallAfter(Marked* self, PyObject* token, bool ok, PyObject* const* args, Py_ssize_t count) {
  PyObject* shown[kMostArgs + 2] = {token, ok ? Py_True : Py_False};
  for (Py_ssize_t i = 0; i < count; ++i) shown[i + 2] = args[i];
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);  // the original's own exception, if any
  PyObject* done = PyObject_Vectorcall(self->after, shown, static_cast<size_t>(count + 2), nullptr);
  const bool end = done == nullptr && Swallow();
  Py_XDECREF(done);
  if (end && type == nullptr) return false;
  if (end) PyErr_Clear();  // the script is ending by an exception of its own
  PyErr_Restore(type, value, trace);
  return true;
}

PyObject* Call(PyObject* object, PyObject* const* args, size_t flags, PyObject* names) {
  auto* self = reinterpret_cast<Marked*>(object);
  const Py_ssize_t given = PyVectorcall_NARGS(flags);
  const Py_ssize_t count = given < kMostArgs ? given : kMostArgs;
  PyObject* token = nullptr;
  if (self->before != Py_None) {
    token = PyObject_Vectorcall(self->before, args, static_cast<size_t>(count), nullptr);
    if (token == nullptr && Swallow()) return nullptr;
  }
  PyObject* result = PyObject_Vectorcall(self->original, args, flags, names);
  if (self->after != Py_None &&
      !CallAfter(self, token == nullptr ? Py_None : token, result != nullptr, args, count)) {
    Py_CLEAR(result);
  }
  Py_XDECREF(token);
  return result;
}

PyObject* New(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *original = nullptr, *before = nullptr, *after = nullptr;
  if (!PyArg_ParseTuple(args, "OOO", &original, &before, &after)) return nullptr;
  auto* self = reinterpret_cast<Marked*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->call = &Call;
  self->original = Py_NewRef(original);
  self->before = Py_NewRef(before);
  self->after = Py_NewRef(after);
  return reinterpret_cast<PyObject*>(self);
}

int Traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<Marked*>(object);
  Py_VISIT(self->original);
  Py_VISIT(self->before);
  Py_VISIT(self->after);
  Py_VISIT(Py_TYPE(object));
  return 0;
}

int Clear(PyObject* object) {
  auto* self = reinterpret_cast<Marked*>(object);
  Py_CLEAR(self->original);
  Py_CLEAR(self->before);
  Py_CLEAR(self->after);
  return 0;
}

void Dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Clear(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* Bind(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

// Everything that is asked of it but what it needs to work is the original's.
PyObject* GetAttribute(PyObject* object, PyObject* name) {
  auto* self = reinterpret_cast<Marked*>(object);
  if (PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0) return Py_NewRef(self->original);
  for (const char* own : {"__get__", "__call__", "__reduce__", "__reduce_ex__"}) {
    if (PyUnicode_CompareWithASCIIString(name, own) == 0) return PyObject_GenericGetAttr(object, name);
  }
  return PyObject_GetAttr(self->original, name);
}

int SetAttribute(PyObject* object, PyObject* name, PyObject* value) {
  return PyObject_SetAttr(reinterpret_cast<Marked*>(object)->original, name, value);
}

PyObject* Represent(PyObject* object) { return PyObject_Repr(reinterpret_cast<Marked*>(object)->original); }

// Pickled and copied as a global function: by its name.
PyObject* Reduce(PyObject* object, PyObject*) {
  return PyObject_GetAttrString(reinterpret_cast<Marked*>(object)->original, "__qualname__");
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Marked, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyMethodDef marked_methods[] = {
    {"__reduce__", &Reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot type_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(&New)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&Dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(&Traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(&Clear)},
    {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(&Bind)},
    {Py_tp_getattro, reinterpret_cast<void*>(&GetAttribute)},
    {Py_tp_setattro, reinterpret_cast<void*>(&SetAttribute)},
    {Py_tp_repr, reinterpret_cast<void*>(&Represent)},
    {Py_tp_members, members},
    {Py_tp_methods, marked_methods},
    {0, nullptr},
};
PyType_Spec type_spec = {"lowtide._track.Marked", sizeof(Marked), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                             Py_TPFLAGS_METHOD_DESCRIPTOR,
                         type_slots};

}  // namespace

int AddMarkedType(PyObject* module) {
  PyObject* type = PyType_FromSpec(&type_spec);
  if (type == nullptr) return -1;
  const int failure = PyModule_AddObjectRef(module, "Marked", type);
  Py_DECREF(type);
  return failure;
}

}  // namespace lowtide::python
