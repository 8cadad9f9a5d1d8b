// The fields that hooks in C (track_gates.cc) and Python share, as base types of Python's classes.
#pragma once

#include "python/track.h"

namespace lowtide::python {

struct MarkState {
  PyObject_HEAD
  unsigned long long steps, leader, loader, trained_loader, no_grad_step;
  int away;
  int open_blocks;  // no_grad blocks that are validations
  char validating;
};

struct Watch {  // one optimizer
  PyObject_HEAD
  unsigned long long steps, wake, next_look;
  char open;
};

constexpr int kCached = 8;

struct GuardState {
  PyObject_HEAD
  unsigned long long step, backwards, backwards_at_step, loss_next;
  unsigned int loss_every;  // backward calls between two looks at the loss; 0 never looks
  double limit;             // a loss within -limit..limit is as usual
  char alive, look, force, waiting;
  PyObject* optimizers[kCached];  // not owned: an address to compare with
  Watch* watches[kCached];
};

extern PyTypeObject *mark_type, *watch_type, *guard_type;

// tp_dealloc of a type of ours with the collector's header.
void DeallocObject(PyObject* object);

// Makes a type and puts it into the module; null with an exception set when that fails.
PyTypeObject* AddType(PyObject* module, PyType_Spec* spec, const char* name);

// MarkState, Watch and GuardState. 0, or -1 with an exception set.
int AddStateTypes(PyObject* module);

}  // namespace lowtide::python
