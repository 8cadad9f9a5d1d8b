#define Py_BUILD_CORE_MODULE 1
#include "walk_cpython.h"

#include <stddef.h>
#include <stdio.h>

#include "internal/pycore_gc.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_object.h"
#if PY_VERSION_HEX < 0x030B0000
#include <frameobject.h>
#endif
#if PY_VERSION_HEX >= 0x030B0000
#include "internal/pycore_code.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_frame.h"
#endif
#include <opcode.h>

#if PY_VERSION_HEX < 0x030A0000 || PY_VERSION_HEX >= 0x030F0000
#error "the object walk knows CPython 3.10 to 3.14"
#endif
#if PY_VERSION_HEX >= 0x030E0000
#include "internal/pycore_interpframe.h"
#include "internal/pycore_stackref.h"
#endif

const char* LtUnsupported(void) {
#ifdef Py_GIL_DISABLED
  return "a free-threaded interpreter cannot be walked";
#else
  int major = 0, minor = 0;
  sscanf(Py_GetVersion(), "%d.%d", &major, &minor);
  const int same = major == PY_MAJOR_VERSION && minor == PY_MINOR_VERSION;
  return same ? NULL : "the object walk was built for another version of Python";
#endif
}

// ---- objects that the collector tracks

static void VisitList(PyGC_Head* head, LtObjectVisitor visit, void* context) {
  PyGC_Head* gc = (PyGC_Head*)(head->_gc_next & ~(uintptr_t)3);
  for (; gc && gc != head; gc = (PyGC_Head*)(gc->_gc_next & ~(uintptr_t)3))
    visit((PyObject*)(gc + 1), context);
}

void LtVisitGcObjects(LtObjectVisitor visit, void* context) {
  PyInterpreterState* interp = PyInterpreterState_Get();
#if PY_VERSION_HEX >= 0x030E0000
  // Called young and old[2] at first, and generations[3] in later patch releases, which lie in the same place: one build
  // serves both.
  struct gc_generation* generations = &interp->gc.permanent_generation - 3;
  _Static_assert(offsetof(struct _gc_runtime_state, permanent_generation) - 3 * sizeof(struct gc_generation) <=
                     offsetof(struct _gc_runtime_state, debug) + sizeof(void*),
                 "nothing lies between the generations and the permanent one");
#else
  struct gc_generation* generations = interp->gc.generations;
#endif
  for (int i = 0; i < 3; ++i) VisitList(&generations[i].head, visit, context);
  VisitList(&interp->gc.permanent_generation.head, visit, context);
}

// ---- frames

int LtSlotCount(PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030B0000
  return code->co_nlocalsplus;
#else
  return code->co_nlocals + (int)PyTuple_GET_SIZE(code->co_cellvars) +
         (int)PyTuple_GET_SIZE(code->co_freevars);
#endif
}

PyObject* LtSlotName(PyCodeObject* code, int index) {
  if (index < 0 || index >= LtSlotCount(code)) return NULL;
#if PY_VERSION_HEX >= 0x030B0000
  return PyTuple_GET_ITEM(code->co_localsplusnames, index);
#else
  if (index < code->co_nlocals) return PyTuple_GET_ITEM(code->co_varnames, index);
  index -= code->co_nlocals;
  const int cells = (int)PyTuple_GET_SIZE(code->co_cellvars);
  return index < cells ? PyTuple_GET_ITEM(code->co_cellvars, index)
                       : PyTuple_GET_ITEM(code->co_freevars, index - cells);
#endif
}

#if PY_VERSION_HEX < 0x030B0000

static void VisitThreadFrames(PyThreadState* thread, LtFrameVisitor visit, void* context) {
  int depth = 0;
  for (PyFrameObject* f = thread->frame; f; f = f->f_back, ++depth) {
    LtFrame frame = {f,
                     thread,
                     depth,
                     f->f_code,
                     NULL,
                     (PyObject*)f,
                     f->f_locals,
                     f->f_localsplus,
                     LtSlotCount(f->f_code),
                     f->f_valuestack,
                     f->f_code->co_stacksize,
                     0};
    frame.line = PyFrame_GetLineNumber(f);
    visit(&frame, context);
  }
}

#else

#if PY_VERSION_HEX >= 0x030E0000
#define LT_CODE(f) ((PyCodeObject*)PyStackRef_AsPyObjectBorrow((f)->f_executable))
#define LT_FUNCTION(f) PyStackRef_AsPyObjectBorrow((f)->f_funcobj)
#define LT_TAG_MASK (~(uintptr_t)3)
#elif PY_VERSION_HEX >= 0x030D0000
#define LT_CODE(f) ((PyCodeObject*)(f)->f_executable)
#define LT_FUNCTION(f) ((f)->f_funcobj)
#elif PY_VERSION_HEX >= 0x030C0000
#define LT_CODE(f) ((f)->f_code)
#define LT_FUNCTION(f) ((f)->f_funcobj)
#else
#define LT_CODE(f) ((f)->f_code)
#define LT_FUNCTION(f) ((PyObject*)(f)->f_func)
#endif

static _PyInterpreterFrame* ThreadFrame(PyThreadState* thread) {
#if PY_VERSION_HEX >= 0x030D0000
  return thread->current_frame;
#else
  return thread->cframe ? thread->cframe->current_frame : NULL;
#endif
}

static void* InstructionOf(_PyInterpreterFrame* f) {
#if PY_VERSION_HEX >= 0x030D0000
  return f->instr_ptr;
#else
  return f->prev_instr;
#endif
}

static char* CodeStart(PyCodeObject* code) { return code->co_code_adaptive; }

static int LineOf(_PyInterpreterFrame* f, PyCodeObject* code) {
  const ptrdiff_t at = (char*)InstructionOf(f) - CodeStart(code);
  return at < 0 ? code->co_firstlineno : PyCode_Addr2Line(code, (int)at);
}

static void VisitFrame(_PyInterpreterFrame* f, PyThreadState* thread, int depth, LtFrameVisitor visit,
                       void* context) {
  PyCodeObject* code = LT_CODE(f);
  LtFrame frame = {f,
                   thread,
                   depth,
                   code,
                   LT_FUNCTION(f),
                   (PyObject*)f->frame_obj,
                   f->f_locals,
                   NULL,
                   code->co_nlocalsplus,
                   NULL,
                   code->co_stacksize,
                   LineOf(f, code)};
#if PY_VERSION_HEX >= 0x030E0000
  // Tagged references: hand out plain pointers.
  const int total = code->co_nlocalsplus + code->co_stacksize;
  PyObject* plain[512];
  if (total > 512) return;
  for (int i = 0; i < total; ++i) plain[i] = (PyObject*)(f->localsplus[i].bits & LT_TAG_MASK);
  frame.slots = plain;
#else
  frame.slots = f->localsplus;
#endif
  frame.stack = frame.slots + code->co_nlocalsplus;
  visit(&frame, context);
}

#if PY_VERSION_HEX < 0x030C0000
// Whether the function is giving its variables back, one by one: the end of one of them may let another thread run, which
// then finds a frame whose first variables are gone. Later versions take the frame down first.
static int Returns(const _PyInterpreterFrame* f) {
  return f->stacktop >= 0 && _Py_OPCODE(*f->prev_instr) == RETURN_VALUE;
}
#endif

static void VisitThreadFrames(PyThreadState* thread, LtFrameVisitor visit, void* context) {
  int depth = 0;
  for (_PyInterpreterFrame* f = ThreadFrame(thread); f; f = f->previous) {
#if PY_VERSION_HEX >= 0x030C0000
    if (f->owner >= FRAME_OWNED_BY_CSTACK) continue;  // a marker without variables
#else
    if (Returns(f)) continue;
#endif
    PyCodeObject* code = LT_CODE(f);
    if (!code || !PyCode_Check((PyObject*)code)) continue;
    VisitFrame(f, thread, depth++, visit, context);
  }
}

#endif

void LtVisitFrames(LtFrameVisitor visit, void* context) {
  PyInterpreterState* interp = PyInterpreterState_Get();
  for (PyThreadState* t = PyInterpreterState_ThreadHead(interp); t; t = PyThreadState_Next(t)) {
    VisitThreadFrames(t, visit, context);
  }
}

void LtVisitThreadObjects(LtObjectVisitor visit, void* context) {
  PyInterpreterState* interp = PyInterpreterState_Get();
  for (PyThreadState* t = PyInterpreterState_ThreadHead(interp); t; t = PyThreadState_Next(t)) {
    PyObject* objects[] = {
      t->dict,
      t->context,
      t->async_exc,
      t->async_gen_firstiter,
      t->async_gen_finalizer,
#if PY_VERSION_HEX >= 0x030C0000
      t->current_exception,
#else
      t->curexc_value,
      t->curexc_traceback,
#endif
    };
    for (size_t i = 0; i < sizeof objects / sizeof *objects; ++i) {
      if (objects[i]) visit(objects[i], context);
    }
    for (_PyErr_StackItem* item = t->exc_info; item; item = item->previous_item) {
      if (item->exc_value) visit(item->exc_value, context);
    }
  }
}

// ---- attributes

PyObject* LtInstanceDict(PyObject* holder) {
#if PY_VERSION_HEX >= 0x030D0000
  if (Py_TYPE(holder)->tp_flags & Py_TPFLAGS_MANAGED_DICT) return (PyObject*)_PyObject_GetManagedDict(holder);
#elif PY_VERSION_HEX >= 0x030C0000
  if (Py_TYPE(holder)->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
    const PyDictOrValues held = *_PyObject_DictOrValuesPointer(holder);
    return _PyDictOrValues_IsValues(held) ? NULL : _PyDictOrValues_GetDict(held);
  }
#elif PY_VERSION_HEX >= 0x030B0000
  if (Py_TYPE(holder)->tp_flags & Py_TPFLAGS_MANAGED_DICT) return *_PyObject_ManagedDictPointer(holder);
#endif
  const Py_ssize_t offset = Py_TYPE(holder)->tp_dictoffset;
  if (offset > 0) return *(PyObject**)((char*)holder + offset);
#if PY_VERSION_HEX < 0x030C0000
  if (offset < 0 && !PyLong_Check(holder)) {
    PyObject** at = _PyObject_GetDictPtr(holder);
    return at ? *at : NULL;
  }
#endif
  return NULL;
}

#if PY_VERSION_HEX >= 0x030B0000
static PyDictValues* InlineValues(PyObject* holder) {
#if PY_VERSION_HEX >= 0x030D0000
  if (!(Py_TYPE(holder)->tp_flags & Py_TPFLAGS_INLINE_VALUES)) return NULL;
  PyDictValues* values = _PyObject_InlineValues(holder);
  return values->valid ? values : NULL;
#elif PY_VERSION_HEX >= 0x030C0000
  if (!(Py_TYPE(holder)->tp_flags & Py_TPFLAGS_MANAGED_DICT)) return NULL;
  const PyDictOrValues held = *_PyObject_DictOrValuesPointer(holder);
  return _PyDictOrValues_IsValues(held) ? _PyDictOrValues_GetValues(held) : NULL;
#else
  if (!(Py_TYPE(holder)->tp_flags & Py_TPFLAGS_MANAGED_DICT)) return NULL;
  return *_PyObject_ValuesPointer(holder);
#endif
}
#endif

PyObject* LtInlineAttributeName(PyObject* holder, PyObject* value) {
#if PY_VERSION_HEX >= 0x030B0000
  PyDictValues* values = InlineValues(holder);
  PyDictKeysObject* keys = values ? ((PyHeapTypeObject*)Py_TYPE(holder))->ht_cached_keys : NULL;
  if (!keys || !DK_IS_UNICODE(keys)) return NULL;
  PyDictUnicodeEntry* entries = DK_UNICODE_ENTRIES(keys);
  for (Py_ssize_t i = 0; i < keys->dk_nentries; ++i) {
    if (values->values[i] == value) return entries[i].me_key;
  }
#else
  (void)holder, (void)value;
#endif
  return NULL;
}

#if PY_VERSION_HEX >= 0x030B0000
static PyCodeObject* LocalOf(_PyInterpreterFrame* f, PyObject* value, PyObject** name) {
  PyCodeObject* code = LT_CODE(f);
  if (!code || !PyCode_Check((PyObject*)code)) return NULL;
  for (int i = 0; i < code->co_nlocalsplus; ++i) {
#if PY_VERSION_HEX >= 0x030E0000
    PyObject* held = (PyObject*)(f->localsplus[i].bits & LT_TAG_MASK);
#else
    PyObject* held = f->localsplus[i];
#endif
    if (held == value) *name = LtSlotName(code, i);
  }
  return code;
}
#endif

PyCodeObject* LtSuspendedLocal(PyObject* holder, PyObject* value, PyObject** name) {
  *name = NULL;
#if PY_VERSION_HEX >= 0x030B0000
  if (PyFrame_Check(holder)) {
    _PyInterpreterFrame* f = ((PyFrameObject*)holder)->f_frame;
    return f ? LocalOf(f, value, name) : NULL;
  }
  if (PyGen_Check(holder) || PyCoro_CheckExact(holder) || PyAsyncGen_CheckExact(holder)) {
    PyGenObject* gen = (PyGenObject*)holder;
    if (gen->gi_frame_state >= FRAME_COMPLETED) return NULL;
#if PY_VERSION_HEX >= 0x030E0000
    return LocalOf(&gen->gi_iframe, value, name);
#else
    return LocalOf((_PyInterpreterFrame*)gen->gi_iframe, value, name);
#endif
  }
  return NULL;
#else
  if (PyGen_CheckExact(holder) || PyCoro_CheckExact(holder) || PyAsyncGen_CheckExact(holder)) {
    holder = (PyObject*)((PyGenObject*)holder)->gi_frame;
  }
  if (!holder || !PyFrame_Check(holder)) return NULL;
  PyFrameObject* f = (PyFrameObject*)holder;
  for (int i = 0; i < LtSlotCount(f->f_code); ++i) {
    if (f->f_localsplus[i] == value) *name = LtSlotName(f->f_code, i);
  }
  return f->f_code;
#endif
}

PyObject* LtVariable(PyFrameObject* frame, PyObject* name) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* value = PyFrame_GetVar(frame, name);
  if (!value) PyErr_Clear();
  return value;
#else
#if PY_VERSION_HEX >= 0x030B0000
  if (!frame->f_frame) return NULL;
  PyCodeObject* code = frame->f_frame->f_code;
  PyObject** slots = frame->f_frame->localsplus;
#else
  PyCodeObject* code = frame->f_code;
  PyObject** slots = frame->f_localsplus;
#endif
  for (int i = 0; i < LtSlotCount(code); ++i) {
    PyObject* held = slots[i];
    if (!held || PyUnicode_Compare(LtSlotName(code, i), name) != 0) continue;
    if (PyCell_Check(held)) held = PyCell_GET(held);
    Py_XINCREF(held);
    return held;
  }
  return NULL;
#endif
}

void LtFrameWeak(PyFrameObject* frame, PyObject* weak[3]) {
  weak[0] = (PyObject*)frame->f_back;
#if PY_VERSION_HEX < 0x030B0000
  weak[1] = frame->f_globals;
  weak[2] = frame->f_builtins;
#endif
}

// ---- sizes

Py_ssize_t LtDictBytes(PyObject* dict) {
  return _PyDict_SizeOf((PyDictObject*)dict) - (Py_ssize_t)sizeof(PyDictObject);
}

size_t LtHeaderBytes(PyTypeObject* type) {
  size_t bytes = PyType_HasFeature(type, Py_TPFLAGS_HAVE_GC) ? sizeof(PyGC_Head) : 0;
#if PY_VERSION_HEX >= 0x030C0000
  if (type->tp_flags & (Py_TPFLAGS_MANAGED_DICT | Py_TPFLAGS_MANAGED_WEAKREF)) bytes += 2 * sizeof(void*);
#elif PY_VERSION_HEX >= 0x030B0000
  if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) bytes += 2 * sizeof(void*);
#endif
  return bytes;
}
