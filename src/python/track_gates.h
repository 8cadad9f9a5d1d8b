// What the files with gates share; what a gate is says track_gates.cc.
#pragma once

#include "python/track_states.h"

namespace lowtide::python {

struct Gate {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject *state, *rare, *more;
};

// What a call of Python's half came to: None, or nullptr when the script is to end by what is set.
PyObject* Settle(Gate* self, PyObject* result);

// The gates of ranks and their state, in track_ranks.cc.
extern PyTypeObject* rank_type;
int AddRankTypes(PyObject* module);
PyObject* OnCollective(PyObject* object, PyObject* const* args, size_t flags, PyObject*);
PyObject* OnWaiting(PyObject* object, PyObject* const* args, size_t flags, PyObject*);
PyObject* OnLeft(PyObject* object, PyObject* const* args, size_t flags, PyObject*);
PyObject* OnRankForward(PyObject* object, PyObject* const* args, size_t flags, PyObject*);
PyObject* BeforeRankBackward(PyObject* object, PyObject* const* args, size_t flags, PyObject*);
PyObject* InRankBackward(PyObject* object, PyObject* const* args, size_t flags, PyObject*);
PyObject* OnComputed(PyObject* object, PyObject* const* args, size_t flags, PyObject*);
PyObject* AfterRankBackward(PyObject* object, PyObject* const* args, size_t flags, PyObject*);
PyObject* BeforeRankStep(PyObject* object, PyObject* const* args, size_t flags, PyObject*);

}  // namespace lowtide::python
