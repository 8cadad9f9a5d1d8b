// _track: the recorder for Python. Raw C API, because a step's record must cost no more than a call.
// Nothing here raises into user code but `SystemExit`, when a run is asked to end at a step.
#include "python/track.h"

#include <cstring>

#include "lowtide/record/host.h"
#include "record/recorder.h"
#include "record/tracker.h"

namespace lowtide::python {
namespace {

using record::Recorder;

PyObject* allocated_blocks = nullptr;  // sys.getallocatedblocks

int64_t PythonBlocks() noexcept {
  if (allocated_blocks == nullptr) return record::kAbsent;
  PyObject* count = PyObject_CallNoArgs(allocated_blocks);
  if (count == nullptr) {
    PyErr_Clear();
    return record::kAbsent;
  }
  const long long value = PyLong_AsLongLong(count);
  Py_DECREF(count);
  return value;
}

PyObject* device_stats = nullptr;  // of set_device_stats()

bool NoteRow(PyObject* row) noexcept {
  int type = 0, index = 0;
  long long allocated = 0, reserved = 0, peak = 0, blocks = 0;
  if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "iiLLLL", &type, &index, &allocated, &reserved, &peak, &blocks)) return false;
  record::NoteDevice(type, index, {allocated, reserved, peak, blocks, 0});
  return true;
}

bool NoteDevices() noexcept {
  PyObject* rows = PyObject_CallNoArgs(device_stats);
  bool noted = false;
  for (Py_ssize_t i = 0; rows != nullptr && PyList_Check(rows) && i < PyList_GET_SIZE(rows); ++i) {
    noted = NoteRow(PyList_GET_ITEM(rows, i)) || noted;
  }
  Py_XDECREF(rows);
  PyErr_Clear();
  return noted;
}

// The integer at `index`, or `otherwise` when there is none or it is None.
int64_t IntAt(PyObject* const* args, Py_ssize_t count, Py_ssize_t index, int64_t otherwise) noexcept {
  if (index >= count || args[index] == Py_None) return otherwise;
  const long long value = PyLong_AsLongLong(args[index]);
  if (value == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return otherwise;
  }
  return value;
}

const char* TextAt(PyObject* const* args, Py_ssize_t count, Py_ssize_t index) noexcept {
  if (index >= count || !PyUnicode_Check(args[index])) return "";
  const char* text = PyUnicode_AsUTF8(args[index]);
  if (text == nullptr) PyErr_Clear();
  return text == nullptr ? "" : text;
}

PyObject* Start(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"directory", "shm_directory", "shm_prefix", "python_version", "torch_version",
                                "script", "definer", "force_table", "heap", "steps", "series", nullptr};
  record::RecorderOptions options;
  int force_table = 0, heap = 1;
  unsigned int steps = options.sizes.steps, series = options.sizes.series;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|ssssssppII", const_cast<char**>(names), &options.directory,
                                   &options.shm_directory, &options.shm_prefix, &options.python_version,
                                   &options.torch_version, &options.script, &options.definer, &force_table, &heap,
                                   &steps, &series)) {
    return nullptr;
  }
  options.force_table = force_table != 0;
  options.heap = heap != 0;
  options.sizes.steps = steps;
  options.sizes.series = series;
  allocated_blocks = PySys_GetObject("getallocatedblocks");
  Py_XINCREF(allocated_blocks);
  options.python_blocks = allocated_blocks == nullptr ? nullptr : &PythonBlocks;
  return PyLong_FromLong(Recorder::Get().Start(options));
}

PyObject* OpenFile(PyObject*, PyObject*) { return PyLong_FromLong(Recorder::Get().OpenFile()); }

PyObject* SetRank(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return PyLong_FromLong(Recorder::Get().SetRank(static_cast<int>(IntAt(args, count, 0, -1)),
                                                 static_cast<int>(IntAt(args, count, 1, -1)),
                                                 static_cast<int>(IntAt(args, count, 2, -1))));
}

PyObject* SetRole(PyObject*, PyObject* role) {
  Recorder::Get().SetRole(static_cast<record::Role>(IntAt(&role, 1, 0, 0)));
  Py_RETURN_NONE;
}

PyObject* Step(PyObject*, PyObject* const* args, Py_ssize_t count) {
  const auto source = static_cast<record::StepSource>(IntAt(args, count, 0, 5));
  return PyLong_FromUnsignedLong(Recorder::Get().Step(source));
}

PyObject* Wants(PyObject*, PyObject* source) {
  return PyBool_FromLong(Recorder::Get().Wants(static_cast<record::StepSource>(IntAt(&source, 1, 0, 0))));
}

PyObject* StopAt(PyObject*, PyObject* step) {
  Recorder::Get().StopAt(static_cast<uint64_t>(IntAt(&step, 1, 0, 0)));
  Py_RETURN_NONE;
}

// take_stop() -> 0 asked, 1 memory, 2 leak
PyObject* TakeStop(PyObject*, PyObject*) { return PyLong_FromLong(static_cast<long>(Recorder::Get().TakeStop())); }

PyObject* AddDataWait(PyObject*, PyObject* ns) {
  Recorder::Get().AddDataWait(IntAt(&ns, 1, 0, 0));
  Py_RETURN_NONE;
}

PyObject* EnterWait(PyObject*, PyObject* name) {
  BeginWait(name);
  Py_RETURN_NONE;
}

PyObject* LeaveWait(PyObject*, PyObject*) {
  if (InMainThread()) Recorder::Get().LeaveWait();
  Py_RETURN_NONE;
}

// phase([new]) -> the one before.
PyObject* SetPhase(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Recorder& recorder = Recorder::Get();
  const auto before = static_cast<long>(recorder.phase());
  if (count > 0) recorder.SetPhase(static_cast<record::Phase>(IntAt(args, count, 0, 0)));
  return PyLong_FromLong(before);
}

// mark(kind, edge, epoch=0, value=None, text="")
PyObject* Mark(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Recorder::Get().Mark(static_cast<record::MarkKind>(IntAt(args, count, 0, 4)),
                       static_cast<record::MarkEdge>(IntAt(args, count, 1, 0)),
                       static_cast<uint32_t>(IntAt(args, count, 2, 0)), IntAt(args, count, 3, record::kAbsent),
                       TextAt(args, count, 4));
  Py_RETURN_NONE;
}

PyObject* SetEpoch(PyObject*, PyObject* epoch) {
  Recorder::Get().SetEpoch(static_cast<uint32_t>(IntAt(&epoch, 1, 0, 0)));
  Py_RETURN_NONE;
}

// event(kind, code=0, value=None, text="")
PyObject* Event(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Recorder::Get().Event(static_cast<record::EventKind>(IntAt(args, count, 0, 8)),
                        static_cast<int32_t>(IntAt(args, count, 1, 0)), IntAt(args, count, 2, record::kAbsent),
                        TextAt(args, count, 3));
  Py_RETURN_NONE;
}

PyObject* LoseMark(PyObject*, PyObject*) {
  Recorder::Get().LoseMark();
  Py_RETURN_NONE;
}

// note_loop(steps, iterations, place)
PyObject* NoteLoop(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Recorder::Get().NoteLoop(static_cast<uint64_t>(IntAt(args, count, 0, 0)), static_cast<uint64_t>(IntAt(args, count, 1, 0)),
                           TextAt(args, count, 2));
  Py_RETURN_NONE;
}

PyObject* AddWorker(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Recorder::Get().AddWorker(static_cast<int>(IntAt(args, count, 0, 0)), static_cast<uint32_t>(IntAt(args, count, 1, 0)),
                            static_cast<uint32_t>(IntAt(args, count, 2, 0)));
  Py_RETURN_NONE;
}

PyObject* EndWorker(PyObject*, PyObject* pid) {
  Recorder::Get().EndWorker(static_cast<int>(IntAt(&pid, 1, 0, 0)));
  Py_RETURN_NONE;
}

// set_device(type, index, capacity, name)
PyObject* SetDevice(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Recorder::Get().SetDevice(static_cast<int>(IntAt(args, count, 0, 0)), static_cast<int>(IntAt(args, count, 1, 0)),
                            IntAt(args, count, 2, record::kAbsent), TextAt(args, count, 3));
  Py_RETURN_NONE;
}

// set_device_stats(callable): () -> [(type, index, allocated, reserved, peak, blocks)]; None: no longer
PyObject* SetDeviceStats(PyObject*, PyObject* callable) {
  Py_INCREF(callable);
  Py_XDECREF(device_stats);
  device_stats = callable;
  Recorder::Get().SetDeviceStats(callable == Py_None ? nullptr : &NoteDevices);
  Py_RETURN_NONE;
}

PyObject* CensusRequest(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(Recorder::Get().census_request()); }

PyObject* CensusBegins(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Recorder::Get().CensusBegins(IntAt(args, count, 0, 0), IntAt(args, count, 1, 0));
  Py_RETURN_NONE;
}

PyObject* CensusPaused(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Recorder::Get().CensusPaused(IntAt(args, count, 0, 0), 0);
  Py_RETURN_NONE;
}

PyObject* CensusDone(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Recorder::Get().CensusDone(static_cast<uint64_t>(IntAt(args, count, 0, 0)), IntAt(args, count, 1, 0),
                             IntAt(args, count, 2, 0));
  Py_RETURN_NONE;
}

PyObject* Exit(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Recorder::Get().Exit(static_cast<record::ExitState>(IntAt(args, count, 0, 1)), static_cast<int>(IntAt(args, count, 1, 0)));
  Py_RETURN_NONE;
}

PyObject* OrNone(int64_t value) {
  if (value == record::kAbsent) Py_RETURN_NONE;
  return PyLong_FromLongLong(value);
}

// {"step", "phase", "cpu_bytes", "cpu_blocks", "cpu_peak_bytes", "shm_tensor_bytes", "heap_bytes", "source",
//  "foreign_frees", "lost_marks", "own_ns", "capabilities", "file", "hooks", "devices": [(type, index, allocated,
//  reserved, peak, blocks)]}, all as of now; heap_bytes is None unless figures(True) asks for it.
PyObject* Figures(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Recorder& recorder = Recorder::Get();
  const record::FileHeader* header = recorder.header();
  if (header == nullptr) Py_RETURN_NONE;
  PyObject* devices = PyList_New(0);
  record::DeviceFigures device;
  for (uint32_t i = 0; devices != nullptr && i < record::kMaxDevices && record::ReadDevice(i, &device); ++i) {
    PyObject* row = Py_BuildValue("(iiLLLL)", header->devices[i].type, header->devices[i].index,
                                  static_cast<long long>(device.allocated), static_cast<long long>(device.reserved),
                                  static_cast<long long>(device.peak), static_cast<long long>(device.blocks));
    if (row == nullptr || PyList_Append(devices, row) != 0) PyErr_Clear();
    Py_XDECREF(row);
  }
  const record::CpuFigures cpu = record::ReadCpu();
  const bool heap = count > 0 && PyObject_IsTrue(args[0]) == 1;
  return Py_BuildValue(
      "{s:K,s:i,s:L,s:L,s:L,s:L,s:N,s:i,s:K,s:K,s:K,s:K,s:s,s:s,s:N}", "step",
      static_cast<unsigned long long>(recorder.steps()), "phase", static_cast<int>(recorder.phase()), "cpu_bytes",
      static_cast<long long>(cpu.bytes), "cpu_blocks", static_cast<long long>(cpu.blocks), "cpu_peak_bytes",
      static_cast<long long>(cpu.peak), "shm_tensor_bytes", static_cast<long long>(record::ReadSharedTensorBytes()),
      "heap_bytes", OrNone(heap ? record::ReadHeap() : record::kAbsent), "source",
      static_cast<int>(header->step_source), "foreign_frees",
      static_cast<unsigned long long>(header->counters.foreign_frees), "lost_marks",
      static_cast<unsigned long long>(header->counters.lost_marks), "own_ns",
      static_cast<unsigned long long>(header->counters.own_ns), "capabilities",
      static_cast<unsigned long long>(header->capabilities), "file", recorder.place().name(), "hooks", header->hooks,
      "devices", devices);
}

template <typename Function>
PyCFunction Method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"start", Method(&Start), METH_VARARGS | METH_KEYWORDS, "start(directory, ...): hook and count; 0 or an errno"},
    {"open_file", &OpenFile, METH_NOARGS, "give the ring its file; 0 or an errno"},
    {"set_rank", Method(&SetRank), METH_FASTCALL, "set_rank(rank, local_rank, world_size); None: unknown"},
    {"set_role", &SetRole, METH_O, "set_role(role)"},
    {"step", Method(&Step), METH_FASTCALL, "step(source): bits 1 counted, 2 first, 4 census wanted, 8 stop, 16 new device, 32 look at the loop"},
    {"wants", &Wants, METH_O, "wants(source): whether steps of this source still count"},
    {"take_stop", &TakeStop, METH_NOARGS, "take_stop() -> why the outside asks for the end (0 asked, 1 memory, 2 leak); forgets it"},
    {"stop_at", &StopAt, METH_O, "stop_at(step): answer 8 from this step on; 0 never"},
    {"add_data_wait", &AddDataWait, METH_O, "add_data_wait(nanoseconds)"},
    {"enter_wait", &EnterWait, METH_O, "enter_wait(name): the main thread begins to wait for other ranks"},
    {"leave_wait", &LeaveWait, METH_NOARGS, "and goes on; elsewhere than in the main thread both do nothing"},
    {"phase", Method(&SetPhase), METH_FASTCALL, "phase([new]): the one before"},
    {"mark", Method(&Mark), METH_FASTCALL, "mark(kind, edge, epoch=0, value=None, text='')"},
    {"set_epoch", &SetEpoch, METH_O, "set_epoch(epochs ended)"},
    {"event", Method(&Event), METH_FASTCALL, "event(kind, code=0, value=None, text='')"},
    {"lose_mark", &LoseMark, METH_NOARGS, "a hook failed inside lowtide"},
    {"note_loop", Method(&NoteLoop), METH_FASTCALL, "note_loop(steps, iterations, place): how often the training loop goes round"},
    {"add_worker", Method(&AddWorker), METH_FASTCALL, "add_worker(pid, loader, worker)"},
    {"end_worker", &EndWorker, METH_O, "end_worker(pid)"},
    {"set_device", Method(&SetDevice), METH_FASTCALL, "set_device(type, index, capacity, name)"},
    {"set_device_stats", &SetDeviceStats, METH_O,
     "set_device_stats(callable): asked for devices whose allocators make no reports"},
    {"census_request", &CensusRequest, METH_NOARGS, "number of the last request"},
    {"census_begins", Method(&CensusBegins), METH_FASTCALL, "census_begins(mapped_bytes, heap_bytes)"},
    {"census_paused", Method(&CensusPaused), METH_FASTCALL, "census_paused(pause_ns): another pause follows"},
    {"census_done", Method(&CensusDone), METH_FASTCALL, "census_done(request, pause_ns, status)"},
    {"exit", Method(&Exit), METH_FASTCALL, "exit(state, code)"},
    {"figures", Method(&Figures), METH_FASTCALL, "figures(heap=False): what is counted now"},
    {"call_later", Method(&CallLater), METH_FASTCALL, "call_later(seconds, callable): once, in the main thread"},
    {"cancel_later", &CancelLater, METH_NOARGS, "forget what call_later was given"},
    {nullptr, nullptr, 0, nullptr},
};

int Execute(PyObject* module) { return AddMarkedType(module) != 0 ? -1 : AddGateTypes(module); }

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(&Execute)},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, nullptr},
};

PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "_track", "The recorder inside the user's process.", 0, methods,
                          slots, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace lowtide::python

PyMODINIT_FUNC PyInit__track() { return PyModuleDef_Init(&lowtide::python::module_def); }
