// _guard.scan, _guard.scale: gradients by address. The caller has checked that each is dense, on the CPU and alive.
#include <cmath>
#include <vector>

#include "lowtide/gradient_scan.h"
#include "python/guard.h"

namespace lowtide::python {
namespace {

constexpr Py_ssize_t kFigures = 5;            // per gradient: norm, largest, zeros, NaNs, infinities
constexpr uint64_t kReleaseAbove = 1u << 16;  // elements; below, giving the lock away costs more than the pass

struct Item {
  void* data;
  uint64_t count;
  ScanType type;
};

// `addresses`, `counts`, `types` are lists of the same length. False with a Python error set.
bool ReadItems(PyObject* addresses, PyObject* counts, PyObject* types, std::vector<Item>& items, uint64_t& total) {
  if (!PyList_Check(addresses) || !PyList_Check(counts) || !PyList_Check(types) ||
      PyList_GET_SIZE(addresses) != PyList_GET_SIZE(counts) || PyList_GET_SIZE(addresses) != PyList_GET_SIZE(types)) {
    PyErr_SetString(PyExc_ValueError, "addresses, counts and types must be lists of one length");
    return false;
  }
  items.reserve(static_cast<size_t>(PyList_GET_SIZE(addresses)));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(addresses); ++i) {
    void* data = PyLong_AsVoidPtr(PyList_GET_ITEM(addresses, i));
    const unsigned long long count = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(counts, i));
    const long type = PyLong_AsLong(PyList_GET_ITEM(types, i));
    if (PyErr_Occurred()) return false;
    if (type < 0 || type > 3 || (!data && count)) {
      PyErr_SetString(PyExc_ValueError, "unknown element type, or no address");
      return false;
    }
    items.push_back({data, count, static_cast<ScanType>(type)});
    total += count;
  }
  return true;
}

// scan(addresses, counts, types, out) -> (total norm, gradients with NaN or infinity, index of the largest norm).
// `out` is a writable buffer of 5 doubles per gradient.
PyObject* Scan(PyObject*, PyObject* args) {
  PyObject *addresses, *counts, *types;
  Py_buffer out;
  if (!PyArg_ParseTuple(args, "OOOw*", &addresses, &counts, &types, &out)) return nullptr;
  std::vector<Item> items;
  uint64_t total = 0;
  if (!ReadItems(addresses, counts, types, items, total) ||
      out.len < static_cast<Py_ssize_t>(items.size()) * kFigures * static_cast<Py_ssize_t>(sizeof(double))) {
    PyBuffer_Release(&out);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the buffer is too small: 5 doubles per gradient");
    return nullptr;
  }
  double sum = 0, most = -1;
  long damaged = 0, first = -1;
  auto* figures = static_cast<double*>(out.buf);
  PyThreadState* released = total > kReleaseAbove ? PyEval_SaveThread() : nullptr;
  for (size_t i = 0; i < items.size(); ++i, figures += kFigures) {
    const GradientScan scan = ScanGradient(items[i].data, items[i].count, items[i].type);
    figures[0] = scan.finite() ? scan.norm() : scan.nans ? NAN : INFINITY;
    figures[1] = scan.largest;
    figures[2] = static_cast<double>(scan.zeros);
    figures[3] = static_cast<double>(scan.nans);
    figures[4] = static_cast<double>(scan.infinities);
    sum += scan.sum_squares;
    damaged += !scan.finite();
    if (scan.finite() && scan.sum_squares > most) most = scan.sum_squares, first = static_cast<long>(i);
  }
  if (released) PyEval_RestoreThread(released);
  PyBuffer_Release(&out);
  return Py_BuildValue("dll", damaged ? NAN : std::sqrt(sum), damaged, first);
}

// scale(addresses, counts, types, factor): float32 in place; ValueError for other types.
PyObject* Scale(PyObject*, PyObject* args) {
  PyObject *addresses, *counts, *types;
  double factor;
  if (!PyArg_ParseTuple(args, "OOOd", &addresses, &counts, &types, &factor)) return nullptr;
  std::vector<Item> items;
  uint64_t total = 0;
  if (!ReadItems(addresses, counts, types, items, total)) return nullptr;
  for (const Item& item : items) {
    if (item.type != ScanType::kFloat32) {
      PyErr_SetString(PyExc_ValueError, "only float32 is scaled here");
      return nullptr;
    }
  }
  Py_BEGIN_ALLOW_THREADS;
  for (const Item& item : items) ScaleGradient(static_cast<float*>(item.data), item.count, static_cast<float>(factor));
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

}  // namespace

PyMethodDef kGradientMethods[] = {
    {"scan", Scan, METH_VARARGS, "scan(addresses, counts, types, out) -> (total_norm, damaged, index_of_largest)"},
    {"scale", Scale, METH_VARARGS, "scale(addresses, counts, types, factor): multiplies float32 gradients in place"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace lowtide::python
