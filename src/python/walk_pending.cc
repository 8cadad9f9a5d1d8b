// lowtide._walk.Pending: a comparison whose arithmetic is done beside the program. The program stands still twice, for
// the census and for the labels; what lies between the two, about as long as the census again, is no pause.
#include "heap/beside.h"
#include "python/walk_compare.h"
#include "python/walk_heap.h"
#include "python/walk_module.h"

namespace lowtide::walk {
namespace {

struct Work {
  PyObject* before = nullptr;  // a Heap, of which nobody else makes use meanwhile
  std::unique_ptr<Census> after;
  heap::PathTree old_paths;
  Comparison comparison;
  uint64_t begun_bytes = 0;  // of the two censuses when the program went on
  std::unique_ptr<heap::Beside> thread;
};

struct PendingObject {
  PyObject_HEAD Work* work;
};

Work* WorkOf(PyObject* self) { return reinterpret_cast<PendingObject*>(self)->work; }

// In a forked child the thread does not exist, and what it worked on is left as it is.
void End(PyObject* self) {
  Work* work = std::exchange(reinterpret_cast<PendingObject*>(self)->work, nullptr);
  if (!work) return;
  const bool lost = work->thread && work->thread->Lost();
  work->thread.reset();
  if (lost) return;
  Py_XDECREF(work->before);
  delete work;
}

void Dealloc(PyObject* self) {
  End(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* Ready(PyObject* self, PyObject*) {
  const Work* work = WorkOf(self);
  return PyBool_FromLong(!work || !work->thread->Runs());
}

// What a comparison's growths take.
uint64_t HeapBytes(const Comparison& comparison) {
  constexpr uint64_t kEntry = 48;  // of a hash table, about
  uint64_t bytes = 0;
  for (const heap::Growth& growth : comparison.growths) {
    bytes += sizeof growth + sizeof(heap::Amount) + sizeof(NodeId) * (growth.entered.capacity() + growth.left.capacity());
  }
  for (const Histogram& types : comparison.types) bytes += kEntry * types.size();
  return bytes;
}

// What was taken since the census, once all is made: (in mappings of our own, in the C heap).
PyObject* TakenBytes(PyObject* self, PyObject*) {
  const Work* work = WorkOf(self);
  if (!work || !work->thread->Done()) return Py_BuildValue("(ii)", 0, 0);
  const Census& before = *reinterpret_cast<HeapObject*>(work->before)->census;
  const heap::PathTree& paths = work->comparison.paths;
  const uint64_t now = before.MemoryBytes() + work->after->MemoryBytes() + paths.parent.size() * sizeof(NodeId) +
                       paths.edge.size() * sizeof(uint64_t) + paths.root.size() * sizeof(uint32_t);
  return Py_BuildValue("(LL)", static_cast<long long>(now) - static_cast<long long>(work->begun_bytes),
                       static_cast<long long>(HeapBytes(work->comparison)));
}

PyObject* Finish(PyObject* self, PyObject*) {
  Work* work = WorkOf(self);
  if (!work) return PyErr_Format(PyExc_RuntimeError, "this comparison has been told");
  if (work->thread->Lost()) return PyErr_Format(PyExc_RuntimeError, "this comparison was begun in the parent process");
  return Guarded([&]() -> PyObject* {
    CollectorOff off;
    work->thread->Wait();
    int64_t gone_bytes = 0;
    PyObject* rows = CompareRows(work->after.get(), work->comparison, &gone_bytes);
    PyObject* heap = rows ? NewHeap(std::move(work->after)) : nullptr;
    End(self);
    if (!heap) Py_CLEAR(rows);
    return heap ? Py_BuildValue("(NNL)", heap, rows, static_cast<long long>(gone_bytes)) : nullptr;
  });
}

PyMethodDef kMethods[] = {
    {"ready", Ready, METH_NOARGS, "ready() -> bool: whether finish() would not have to wait."},
    {"taken_bytes", TakenBytes, METH_NOARGS, "taken_bytes() -> (in mappings, in the C heap): bytes taken since the census; 0 until ready()."},
    {"finish", Finish, METH_NOARGS, "finish() -> (Heap, rows, gone_bytes): as compare() gives them, without what is gone by now; once."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot kSlots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)}, {Py_tp_methods, kMethods}, {0, nullptr}};
PyType_Spec kSpec = {"lowtide._walk.Pending", sizeof(PendingObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                     kSlots};

}  // namespace

PyTypeObject* PendingType() {
  static PyTypeObject* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  return type;
}

PyObject* NewPending(PyObject* before, int64_t least_bytes, size_t most, bool scoped) {
  auto work = std::make_unique<Work>();
  {
    CollectorOff off;
    work->after = std::make_unique<Census>();
    BuildCensus(work->after.get(), scoped);
    work->after->map.Clear();
  }
  PendingObject* pending = reinterpret_cast<PendingObject*>(PendingType()->tp_alloc(PendingType(), 0));
  if (!pending) return nullptr;
  Py_INCREF(before);
  work->before = before;
  Work* at = pending->work = work.release();
  Census* old = reinterpret_cast<HeapObject*>(before)->census;
  at->begun_bytes = old->MemoryBytes() + at->after->MemoryBytes();
  at->thread = std::make_unique<heap::Beside>(
      [at, old, least_bytes, most] {
        Prepare(old, &at->old_paths);
        at->comparison = Compare(*old, at->old_paths, at->after.get(), least_bytes, most);
        old->map.Clear();
        at->old_paths = {};
      },
      heap::Beside::kAnyProcessor);
  return reinterpret_cast<PyObject*>(pending);
}

}  // namespace lowtide::walk
