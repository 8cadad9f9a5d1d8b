// What PyTorch calls in every step: hooks of optimizers and of backward, in C, so that a step in which nothing is to
// be done costs some hundred instructions. What is rare is done in Python: each gate knows a function for it.
//
//   Gate(kind, state, rare[, more])   `kind` as below; `state` has the fields that it shares with Python (track_states.h);
//                                     `rare` and `more` are called as the kind says
//
// An exception of `rare` is lowtide's own: it is swallowed and counted (marks) or ends the guard (state.fail(error)),
// but what is no Exception (SystemExit, KeyboardInterrupt) passes.
#include "python/track_gates.h"

#include <structmember.h>

#include <cstddef>
#include <cstring>

#include "record/recorder.h"

namespace lowtide::python {

using record::Recorder;

PyObject* Settle(Gate* self, PyObject* result) {
  if (result != nullptr) {
    Py_DECREF(result);
    Py_RETURN_NONE;
  }
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
  if (!PyObject_TypeCheck(self->state, guard_type)) {
    PyErr_Clear();
    Recorder::Get().LoseMark();
    Py_RETURN_NONE;
  }
  PyObject *type = nullptr, *error = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &error, &trace);
  PyErr_NormalizeException(&type, &error, &trace);
  reinterpret_cast<GuardState*>(self->state)->alive = 0;
  PyObject* done = PyObject_CallMethod(self->state, "fail", "O", error != nullptr ? error : Py_None);
  if (done == nullptr) PyErr_Clear();
  Py_XDECREF(done);
  Py_XDECREF(type), Py_XDECREF(error), Py_XDECREF(trace);
  Py_RETURN_NONE;
}

namespace {

// ---- gates ----------------------------------------------------------------------------------------------------------

// "step": after an optimizer's step. The leader's ends a step of the run; `rare(optimizer)` takes any other, and what
// comes in a validation; `more(bits)` what the outside asks for.
PyObject* OnStep(PyObject* object, PyObject* const* args, size_t flags, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  auto* state = reinterpret_cast<MarkState*>(self->state);
  if (PyVectorcall_NARGS(flags) < 1) Py_RETURN_NONE;
  if (state->validating || state->leader != reinterpret_cast<uintptr_t>(args[0])) {
    return Settle(self, PyObject_CallOneArg(self->rare, args[0]));
  }
  state->away = 0;
  Recorder& recorder = Recorder::Get();
  recorder.SetPhase(record::Phase::kStep);
  const uint32_t bits = recorder.Step(record::StepSource::kOptimizer);
  if (bits == 0) Py_RETURN_NONE;
  ++state->steps;
  if (state->loader != 0) state->trained_loader = state->loader;
  if (bits == 1) Py_RETURN_NONE;
  PyObject* number = PyLong_FromUnsignedLong(bits);
  PyObject* done = number == nullptr ? nullptr : PyObject_CallOneArg(self->more, number);
  Py_XDECREF(number);
  return Settle(self, done);
}

// "wanted": after a backward. `rare()` when such calls may end a step.
PyObject* OnWanted(PyObject* object, PyObject* const*, size_t, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  if (!Recorder::Get().Wants(record::StepSource::kBackward)) Py_RETURN_NONE;
  return Settle(self, PyObject_CallNoArgs(self->rare));
}

// "no_grad entered", called (token, ok, block, ...). In every step it is part of the step (an average of weights); now
// and then it may be a validation: `rare(block)`.
PyObject* OnNoGrad(PyObject* object, PyObject* const* args, size_t flags, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  auto* state = reinterpret_cast<MarkState*>(self->state);
  if (state->validating || state->steps == 0 || PyVectorcall_NARGS(flags) < 3) Py_RETURN_NONE;
  const unsigned long long since = state->steps - state->no_grad_step;
  state->no_grad_step = state->steps;
  if (since <= 1) Py_RETURN_NONE;
  return Settle(self, PyObject_CallOneArg(self->rare, args[2]));
}

// "no_grad left", called (token, ok, block, ...): `rare(block)` while one of them is a validation.
PyObject* OnNoGradLeft(PyObject* object, PyObject* const* args, size_t flags, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  if (reinterpret_cast<MarkState*>(self->state)->open_blocks == 0 || PyVectorcall_NARGS(flags) < 3) Py_RETURN_NONE;
  return Settle(self, PyObject_CallOneArg(self->rare, args[2]));
}

Watch* Find(const GuardState* guard, const PyObject* optimizer) {
  for (int i = 0; i < kCached; ++i) {
    if (guard->optimizers[i] == optimizer) return guard->watches[i];
  }
  return nullptr;
}

// The optimizer's Watch, from `more(optimizer)` the first time. A borrowed reference or nullptr with an exception.
Watch* FindOrAsk(Gate* self, GuardState* guard, PyObject* optimizer) {
  if (Watch* known = Find(guard, optimizer)) return known;
  PyObject* made = PyObject_CallOneArg(self->more, optimizer);
  if (made == nullptr) return nullptr;
  if (!PyObject_TypeCheck(made, watch_type)) {
    Py_DECREF(made);
    PyErr_SetString(PyExc_TypeError, "not a Watch");
    return nullptr;
  }
  auto* watch = reinterpret_cast<Watch*>(made);
  for (int i = 0; i < kCached; ++i) {
    if (guard->optimizers[i] != nullptr) continue;
    guard->optimizers[i] = optimizer;
    guard->watches[i] = watch;
    return watch;
  }
  Py_DECREF(made);  // too many optimizers to remember: Python keeps it
  return watch;
}

// "before step": `rare(watch)` when the watch has something to do in this step.
PyObject* BeforeStep(PyObject* object, PyObject* const* args, size_t flags, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  auto* guard = reinterpret_cast<GuardState*>(self->state);
  if (!guard->alive || PyVectorcall_NARGS(flags) < 1) Py_RETURN_NONE;
  Watch* watch = FindOrAsk(self, guard, args[0]);
  if (watch == nullptr) return Settle(self, nullptr);
  if (++watch->steps > guard->step) guard->step = watch->steps;
  if (!watch->open && !guard->force && watch->steps < watch->wake) Py_RETURN_NONE;
  return Settle(self, PyObject_CallOneArg(self->rare, reinterpret_cast<PyObject*>(watch)));
}

// "after step": `rare(watch)` when it is time to open a window.
PyObject* AfterStep(PyObject* object, PyObject* const* args, size_t flags, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  auto* guard = reinterpret_cast<GuardState*>(self->state);
  if (!guard->alive || PyVectorcall_NARGS(flags) < 1) Py_RETURN_NONE;
  guard->backwards_at_step = guard->backwards;
  Watch* watch = FindOrAsk(self, guard, args[0]);
  if (watch == nullptr) return Settle(self, nullptr);
  if (watch->steps < watch->next_look) Py_RETURN_NONE;
  return Settle(self, PyObject_CallOneArg(self->rare, reinterpret_cast<PyObject*>(watch)));
}

PyObject *name_is_cpu = nullptr, *name_item = nullptr;

// Whether a loss in the host's memory is out of the usual. On a device reading it would wait for the device.
bool LossIsUnusual(GuardState* guard, PyObject* loss) {
  PyObject* here = PyObject_GetAttr(loss, name_is_cpu);
  const bool on_cpu = here == Py_True;
  Py_XDECREF(here);
  PyObject* item = on_cpu ? PyObject_CallMethodNoArgs(loss, name_item) : nullptr;
  const double value = item != nullptr ? PyFloat_AsDouble(item) : 0;
  Py_XDECREF(item);
  if (PyErr_Occurred()) PyErr_Clear();  // more than one element, a complex number, not a tensor
  else if (item != nullptr) return !(value > -guard->limit && value < guard->limit);
  return false;
}

// "before backward": `rare(loss)` while a window is open and when the loss is not as usual.
PyObject* BeforeBackward(PyObject* object, PyObject* const* args, size_t flags, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  auto* guard = reinterpret_cast<GuardState*>(self->state);
  if (!guard->alive) Py_RETURN_NONE;
  ++guard->backwards;
  PyObject* loss = PyVectorcall_NARGS(flags) > 0 ? args[0] : Py_None;
  bool rare = guard->look || guard->waiting;
  if (!rare && guard->loss_every != 0 && guard->backwards >= guard->loss_next) {
    guard->loss_next = guard->backwards + guard->loss_every;
    rare = loss != Py_None && LossIsUnusual(guard, loss);
  }
  if (!rare) Py_RETURN_NONE;
  return Settle(self, PyObject_CallOneArg(self->rare, loss));
}

// "after backward", called (token, ok, ...): `rare()` while a window is open.
PyObject* AfterBackward(PyObject* object, PyObject* const* args, size_t flags, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  auto* guard = reinterpret_cast<GuardState*>(self->state);
  if (!guard->look || PyVectorcall_NARGS(flags) < 2 || args[1] != Py_True) Py_RETURN_NONE;
  return Settle(self, PyObject_CallNoArgs(self->rare));
}

constexpr struct {
  const char* name;
  vectorcallfunc call;
  PyTypeObject** state;
} kKinds[] = {
    {"step", &OnStep, &mark_type},
    {"wanted", &OnWanted, &mark_type},
    {"no_grad entered", &OnNoGrad, &mark_type},
    {"no_grad left", &OnNoGradLeft, &mark_type},
    {"before step", &BeforeStep, &guard_type},
    {"after step", &AfterStep, &guard_type},
    {"before backward", &BeforeBackward, &guard_type},
    {"after backward", &AfterBackward, &guard_type},
    {"collective", &OnCollective, &rank_type},
    {"waiting", &OnWaiting, &rank_type},
    {"left", &OnLeft, &rank_type},
    {"rank forward", &OnRankForward, &rank_type},
    {"rank before backward", &BeforeRankBackward, &rank_type},
    {"in backward", &InRankBackward, &rank_type},
    {"computed", &OnComputed, &rank_type},
    {"rank after backward", &AfterRankBackward, &rank_type},
    {"rank step", &BeforeRankStep, &rank_type},
};

PyObject* NewGate(PyTypeObject* type, PyObject* args, PyObject*) {
  const char* name = nullptr;
  PyObject *state = nullptr, *rare = nullptr, *more = Py_None;
  if (!PyArg_ParseTuple(args, "sOO|O", &name, &state, &rare, &more)) return nullptr;
  for (const auto& kind : kKinds) {
    if (std::strcmp(kind.name, name) != 0 || !PyObject_TypeCheck(state, *kind.state)) continue;
    auto* self = reinterpret_cast<Gate*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->call = kind.call;
    self->state = Py_NewRef(state);
    self->rare = Py_NewRef(rare);
    self->more = Py_NewRef(more);
    return reinterpret_cast<PyObject*>(self);
  }
  return PyErr_Format(PyExc_ValueError, "no gate '%s' for this state", name);
}

int TraverseGate(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<Gate*>(object);
  Py_VISIT(self->state);
  Py_VISIT(self->rare);
  Py_VISIT(self->more);
  Py_VISIT(Py_TYPE(object));
  return 0;
}

int ClearGate(PyObject* object) {
  auto* self = reinterpret_cast<Gate*>(object);
  Py_CLEAR(self->state);
  Py_CLEAR(self->rare);
  Py_CLEAR(self->more);
  return 0;
}

PyMemberDef gate_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Gate, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot gate_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(&NewGate)},
    {Py_tp_members, gate_members},
    {Py_tp_traverse, reinterpret_cast<void*>(&TraverseGate)},
    {Py_tp_clear, reinterpret_cast<void*>(&ClearGate)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&DeallocObject)},
    {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
    {0, nullptr},
};
PyType_Spec gate_spec = {"lowtide._track.Gate", sizeof(Gate), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, gate_slots};

}  // namespace

int AddGateTypes(PyObject* module) {
  name_is_cpu = PyUnicode_InternFromString("is_cpu");
  name_item = PyUnicode_InternFromString("item");
  PyTypeObject* gate = AddType(module, &gate_spec, "Gate");
  const bool all = name_is_cpu != nullptr && name_item != nullptr && gate != nullptr && AddStateTypes(module) == 0 && AddRankTypes(module) == 0;
  Py_XDECREF(gate);
  return all ? 0 : -1;
}

}  // namespace lowtide::python
