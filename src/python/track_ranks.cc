// Gates of the ranks' half: what is called in every step and in every collective of a distributed program.
//
// While one wrapped model trains as usual (one averaging forward through the wrapper, a backward, a step of its
// optimizer), C counts and Python is not called. Everything else, and each step at which something is to be looked at, goes to Python,
// which first takes over what was counted (_ranks_wrapped.py).
#include "python/track_gates.h"

#include <pthread.h>
#include <structmember.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "record/recorder.h"

namespace lowtide::python {

PyTypeObject* rank_type = nullptr;

namespace {

using record::Recorder;

struct RankState {
  PyObject_HEAD
  unsigned long long backwards, backwards_before;  // all; when the usual model's optimizer last stepped
  unsigned long long reducer, optimizer;           // addresses of the usual model's; 0: every call goes to Python
  unsigned long long syncs, total_syncs;           // its forwards through the wrapper: since that step, and all
  unsigned long long quiet, quiet_most, wake;      // usual steps not told to Python; how many may be; the step it wants
  int world;
  char begun, models, computed;                    // an epoch began; there are wrapped models; backward only waits
  char group_is_all;                               // the newest group has all ranks
  PyObject *last, *counts, *group;                 // the newest collective's name; how often each was called; a weak reference
};

PyMemberDef rank_members[] = {
    {"backwards", T_ULONGLONG, offsetof(RankState, backwards), 0, nullptr},
    {"backwards_before", T_ULONGLONG, offsetof(RankState, backwards_before), 0, nullptr},
    {"reducer", T_ULONGLONG, offsetof(RankState, reducer), 0, nullptr},
    {"optimizer", T_ULONGLONG, offsetof(RankState, optimizer), 0, nullptr},
    {"syncs", T_ULONGLONG, offsetof(RankState, syncs), 0, nullptr},
    {"total_syncs", T_ULONGLONG, offsetof(RankState, total_syncs), 0, nullptr},
    {"quiet", T_ULONGLONG, offsetof(RankState, quiet), 0, nullptr},
    {"quiet_most", T_ULONGLONG, offsetof(RankState, quiet_most), 0, nullptr},
    {"wake", T_ULONGLONG, offsetof(RankState, wake), 0, nullptr},
    {"world", T_INT, offsetof(RankState, world), 0, nullptr},
    {"begun", T_BOOL, offsetof(RankState, begun), 0, nullptr},
    {"models", T_BOOL, offsetof(RankState, models), 0, nullptr},
    {"computed", T_BOOL, offsetof(RankState, computed), 0, nullptr},
    {"last", T_OBJECT, offsetof(RankState, last), 0, nullptr},
    {"counts", T_OBJECT, offsetof(RankState, counts), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

int TraverseRank(PyObject* object, visitproc visit, void* arg) {
  auto* state = reinterpret_cast<RankState*>(object);
  Py_VISIT(state->last);
  Py_VISIT(state->counts);
  Py_VISIT(state->group);
  Py_VISIT(Py_TYPE(object));
  return 0;
}

int ClearRank(PyObject* object) {
  auto* state = reinterpret_cast<RankState*>(object);
  Py_CLEAR(state->last);
  Py_CLEAR(state->counts);
  Py_CLEAR(state->group);
  return 0;
}

PyType_Slot rank_slots[] = {{Py_tp_members, rank_members},
                            {Py_tp_traverse, reinterpret_cast<void*>(&TraverseRank)},
                            {Py_tp_clear, reinterpret_cast<void*>(&ClearRank)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(&DeallocObject)},
                            {0, nullptr}};
PyType_Spec rank_spec = {"lowtide._track.RankState", sizeof(RankState), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, rank_slots};

PyObject *name_size = nullptr, *name_hooks = nullptr, *name_grad_fn = nullptr, *name_register = nullptr, *our_key = nullptr,
         *ordered_dict = nullptr, *one = nullptr;

RankState* StateOf(Gate* self) { return reinterpret_cast<RankState*>(self->state); }

// Whether `weak`, a reference that may be null, is one to `object`.
bool RefersTo(PyObject* weak, PyObject* object) {
  if (weak == nullptr) return false;
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* now = nullptr;
  PyWeakref_GetRef(weak, &now);
  Py_XDECREF(now);  // `object` is the caller's
  return now == object;
#else
  return PyWeakref_GetObject(weak) == object;
#endif
}

// Whether `group` has all ranks of the job. False with an exception set when it does not say.
bool IsAll(RankState* state, PyObject* group) {
  if (RefersTo(state->group, group)) return state->group_is_all;
  PyObject* size = PyObject_CallMethodNoArgs(group, name_size);
  const long ranks = size == nullptr ? -1 : PyLong_AsLong(size);
  Py_XDECREF(size);
  if (PyErr_Occurred()) return false;
  state->group_is_all = ranks == state->world;
  Py_XSETREF(state->group, PyWeakref_NewRef(group, nullptr));
  if (state->group == nullptr) PyErr_Clear();
  return state->group_is_all;
}

// Adds one to counts[name]. False with an exception set.
bool Count(PyObject* counts, PyObject* name) {
  PyObject* before = PyDict_GetItemWithError(counts, name);  // borrowed
  if (before == nullptr && PyErr_Occurred()) return false;
  PyObject* now = before == nullptr ? Py_NewRef(one) : PyNumber_Add(before, one);
  const bool done = now != nullptr && PyDict_SetItem(counts, name, now) == 0;
  Py_XDECREF(now);
  return done;
}

// The hooks of `root`, with ours among them: PyTorch's own Tensor.register_hook, without a handle. A new reference; null
// with or without an exception when it takes no part in a graph.
PyObject* Hook(PyObject* root, PyObject* gate) {
  PyObject* node = PyObject_GetAttr(root, name_grad_fn);
  if (node == nullptr || node == Py_None) {
    Py_XDECREF(node);
    return nullptr;
  }
  PyObject* hooks = PyObject_GetAttr(root, name_hooks);
  if (hooks == Py_None) {
    Py_DECREF(hooks);
    hooks = PyObject_CallNoArgs(ordered_dict);
    PyObject* done = hooks != nullptr && PyObject_SetAttr(root, name_hooks, hooks) == 0
                         ? PyObject_CallMethodOneArg(node, name_register, root)
                         : nullptr;
    if (done == nullptr) Py_CLEAR(hooks);
    Py_XDECREF(done);
  }
  Py_DECREF(node);
  if (hooks != nullptr && PyObject_SetItem(hooks, our_key, gate) != 0) Py_CLEAR(hooks);
  return hooks;
}

thread_local int in_main = 0;  // 0 not known yet, 1 yes, -1 no

}  // namespace

// Two calls of the system, so their answer is kept; a forked child has another main thread.
bool InMainThread() {
  if (in_main == 0) in_main = ::syscall(SYS_gettid) == ::getpid() ? 1 : -1;
  return in_main > 0;
}

void BeginWait(PyObject* name) {
  const char* text = name != nullptr && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (text == nullptr) PyErr_Clear();
  if (InMainThread()) Recorder::Get().EnterWait(text == nullptr ? "" : text);
}

// "collective", called (group, ...): the main thread begins to wait. `rare` is the collective's name; `more` is true for
// those that all ranks of a group call, which are counted where the group is the whole job.
PyObject* OnCollective(PyObject* object, PyObject* const* args, size_t flags, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  RankState* state = StateOf(self);
  Py_XSETREF(state->last, Py_NewRef(self->rare));
  BeginWait(self->rare);
  if (self->more != Py_True || PyVectorcall_NARGS(flags) < 1 || state->counts == nullptr) Py_RETURN_NONE;
  if (IsAll(state, args[0]) && !Count(state->counts, self->rare)) return Settle(self, nullptr);
  if (PyErr_Occurred()) return Settle(self, nullptr);
  Py_RETURN_NONE;
}

// "waiting": the main thread waits for what it called last.
PyObject* OnWaiting(PyObject* object, PyObject* const*, size_t, PyObject*) {
  BeginWait(StateOf(reinterpret_cast<Gate*>(object))->last);
  Py_RETURN_NONE;
}

// "left": and goes on.
PyObject* OnLeft(PyObject*, PyObject* const*, size_t, PyObject*) {
  if (InMainThread()) Recorder::Get().LeaveWait();
  Py_RETURN_NONE;
}

// "rank forward", called (reducer, ...): a forward whose backward averages. `rare(reducer)` for another model.
PyObject* OnRankForward(PyObject* object, PyObject* const* args, size_t flags, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  RankState* state = StateOf(self);
  if (PyVectorcall_NARGS(flags) < 1) Py_RETURN_NONE;
  if (state->reducer != reinterpret_cast<uintptr_t>(args[0])) return Settle(self, PyObject_CallOneArg(self->rare, args[0]));
  ++state->syncs;
  ++state->total_syncs;
  Py_RETURN_NONE;
}

// "rank before backward", called (roots, ...): `rare(root)` unless all is as usual. `more` is (torch.Tensor, gate "in
// backward"), which becomes a hook of the root where models are wrapped. Returns the root's hooks.
PyObject* BeforeRankBackward(PyObject* object, PyObject* const* args, size_t flags, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  RankState* state = StateOf(self);
  PyObject* root = PyVectorcall_NARGS(flags) > 0 ? args[0] : Py_None;
  if (PyTuple_Check(root)) root = PyTuple_GET_SIZE(root) > 0 ? PyTuple_GET_ITEM(root, 0) : Py_None;
  if (PyList_Check(root)) root = PyList_GET_SIZE(root) > 0 ? PyList_GET_ITEM(root, 0) : Py_None;
  ++state->backwards;
  state->computed = 0;
  if (state->reducer == 0 || state->syncs > 1) {
    PyObject* done = Settle(self, PyObject_CallOneArg(self->rare, root));
    if (done == nullptr) return nullptr;
    Py_DECREF(done);
  }
  if (!state->models || reinterpret_cast<PyObject*>(Py_TYPE(root)) != PyTuple_GetItem(self->more, 0)) Py_RETURN_NONE;
  PyObject* hooks = Hook(root, PyTuple_GetItem(self->more, 1));
  if (hooks != nullptr) return hooks;
  if (PyErr_Occurred()) return Settle(self, nullptr);
  Py_RETURN_NONE;
}

// "in backward": a hook of the root. `rare` is the engine's queue_callback, `more` the gate "computed": the engine calls
// it when all gradients are computed, before the wrapper's own callback waits for the last bucket.
PyObject* InRankBackward(PyObject* object, PyObject* const*, size_t, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  return Settle(self, PyObject_CallOneArg(self->rare, self->more));
}

// "computed": `rare` is what is waited for now.
PyObject* OnComputed(PyObject* object, PyObject* const*, size_t, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  RankState* state = StateOf(self);
  if (!state->computed) BeginWait(self->rare);
  state->computed = 1;
  Py_RETURN_NONE;
}

// "rank after backward", called (hooks, ok, ...).
PyObject* AfterRankBackward(PyObject* object, PyObject* const* args, size_t flags, PyObject*) {
  RankState* state = StateOf(reinterpret_cast<Gate*>(object));
  if (state->computed && InMainThread()) Recorder::Get().LeaveWait();
  state->computed = 0;
  if (PyVectorcall_NARGS(flags) > 0 && args[0] != Py_None && PyObject_DelItem(args[0], our_key) != 0) PyErr_Clear();
  Py_RETURN_NONE;
}

// "rank step", called (optimizer, args, kwargs): `rare` with the same, unless all is as usual. `more` is the MarkState.
PyObject* BeforeRankStep(PyObject* object, PyObject* const* args, size_t flags, PyObject*) {
  auto* self = reinterpret_cast<Gate*>(object);
  RankState* state = StateOf(self);
  if (PyVectorcall_NARGS(flags) < 1) Py_RETURN_NONE;
  const bool usual = state->optimizer == reinterpret_cast<uintptr_t>(args[0]) && state->syncs == 1 &&
                     state->backwards > state->backwards_before && !state->begun && state->quiet < state->quiet_most &&
                     PyObject_TypeCheck(self->more, mark_type) &&
                     reinterpret_cast<MarkState*>(self->more)->steps + 1 < state->wake;
  if (!usual) return Settle(self, PyObject_CallOneArg(self->rare, args[0]));
  ++state->quiet;
  state->syncs = 0;
  state->backwards_before = state->backwards;
  Py_RETURN_NONE;
}

int AddRankTypes(PyObject* module) {
  name_size = PyUnicode_InternFromString("size");
  name_hooks = PyUnicode_InternFromString("_backward_hooks");
  name_grad_fn = PyUnicode_InternFromString("grad_fn");
  name_register = PyUnicode_InternFromString("_register_hook_dict");
  our_key = PyUnicode_InternFromString("lowtide");
  one = PyLong_FromLong(1);
  PyObject* collections = PyImport_ImportModule("collections");
  ordered_dict = collections != nullptr ? PyObject_GetAttrString(collections, "OrderedDict") : nullptr;
  Py_XDECREF(collections);
  ::pthread_atfork(nullptr, nullptr, [] { in_main = 0; });
  rank_type = AddType(module, &rank_spec, "RankState");
  const bool all = name_size && name_hooks && name_grad_fn && name_register && our_key && one && ordered_dict && rank_type;
  return all ? 0 : -1;
}

}  // namespace lowtide::python
