// call_later(seconds, callable): runs it once in the main thread, unless the interpreter ends before. A native thread
// sleeps meanwhile: a Python one would show in threading.enumerate() and in the names of the user's threads.
#include <pthread.h>

#include <ctime>

#include "base/signals.h"
#include "python/track.h"
#include "record/recorder.h"

namespace lowtide::python {
namespace {

PyObject* waiting = nullptr;  // the callable; only touched with the interpreter's lock
double delay_seconds = 0;

int RunPending(void*) {
  PyObject* callable = waiting;
  waiting = nullptr;
  if (callable == nullptr) return 0;
  PyObject* done = PyObject_CallNoArgs(callable);
  if (done == nullptr) {
    PyErr_Clear();
    record::Recorder::Get().LoseMark();
  }
  Py_XDECREF(done);
  Py_DECREF(callable);
  return 0;
}

void* Sleep(void*) {
  timespec left{static_cast<time_t>(delay_seconds),
                static_cast<long>((delay_seconds - static_cast<double>(static_cast<time_t>(delay_seconds))) * 1e9)};
  while (::nanosleep(&left, &left) != 0) {
  }
  if (Py_IsInitialized()) Py_AddPendingCall(&RunPending, nullptr);
  return nullptr;
}

}  // namespace

PyObject* CallLater(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "call_later(seconds, callable)");
    return nullptr;
  }
  const double seconds = PyFloat_AsDouble(args[0]);
  if (PyErr_Occurred()) return nullptr;
  if (waiting != nullptr) Py_RETURN_FALSE;
  waiting = Py_NewRef(args[1]);
  delay_seconds = seconds;
  pthread_attr_t attributes;
  pthread_t thread;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  ::pthread_attr_setstacksize(&attributes, 64 << 10);
  const SignalsBlocked blocked;
  const int failure = ::pthread_create(&thread, &attributes, &Sleep, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (failure != 0) Py_CLEAR(waiting);
  return PyBool_FromLong(failure == 0);
}

PyObject* CancelLater(PyObject*, PyObject*) {
  Py_CLEAR(waiting);
  Py_RETURN_NONE;
}

}  // namespace lowtide::python
