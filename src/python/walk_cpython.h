// What the object walk needs to know of the interpreter's inside, one interpreter version at a time.
// The interpreter's internal headers compile as C only; this is the only file that needs them.
#pragma once

#include <Python.h>
#include <frameobject.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// One running Python function. `slots` are its local variables, cells and free variables (borrowed, may be
// NULL), named by `code`; `stack` are words of its evaluation stack, which may be stale: they are no objects
// unless the caller knows so from elsewhere.
typedef struct {
  void* address;
  PyThreadState* thread;
  int depth;  // 0: the innermost
  PyCodeObject* code;
  PyObject* function;  // borrowed, may be NULL
  PyObject* object;    // its frame object, if one was made; borrowed
  PyObject* locals;    // dict of a module's or class's body, borrowed, may be NULL
  PyObject** slots;
  int slot_count;
  PyObject** stack;
  int stack_count;
  int line;
} LtFrame;

typedef void (*LtFrameVisitor)(const LtFrame* frame, void* context);
typedef void (*LtObjectVisitor)(PyObject* object, void* context);

// NULL, or why this interpreter cannot be walked.
const char* LtUnsupported(void);

// Every object that the collector tracks, the frozen ones included where the interpreter tells them.
void LtVisitGcObjects(LtObjectVisitor visit, void* context);

// Every Python function that runs, in all threads; generators that run now included.
void LtVisitFrames(LtFrameVisitor visit, void* context);

// What the interpreter keeps for each thread: its dict (thread locals), its context (ContextVars),
// exceptions.
void LtVisitThreadObjects(LtObjectVisitor visit, void* context);

// Name of the attribute of `holder` that holds `value` without there being a dict; borrowed; NULL: none does.
PyObject* LtInlineAttributeName(PyObject* holder, PyObject* value);

// The dict of `holder` if there is one by now; never makes one. Borrowed.
PyObject* LtInstanceDict(PyObject* holder);

// Code and name of the local through which a suspended generator, coroutine or a left frame holds `value`.
PyCodeObject* LtSuspendedLocal(PyObject* holder, PyObject* value, PyObject** name);

// Name of slot `index` of a function with `code`; borrowed.
PyObject* LtSlotName(PyCodeObject* code, int index);
int LtSlotCount(PyCodeObject* code);

// The value of a running function's variable; NULL without an exception: it has none. A new reference. Nothing that would
// keep the other variables alive is made, as `frame.f_locals` makes before 3.13.
PyObject* LtVariable(PyFrameObject* frame, PyObject* name);

// What a frame object refers to beside its variables: its caller, globals and builtins; borrowed, may be
// NULL.
void LtFrameWeak(PyFrameObject* frame, PyObject* weak[3]);

// Bytes of a dict's tables.
Py_ssize_t LtDictBytes(PyObject* dict);

// Bytes in front of an object of this type: the collector's header, managed dict and weakref words.
size_t LtHeaderBytes(PyTypeObject* type);

#ifdef __cplusplus
}
#endif
