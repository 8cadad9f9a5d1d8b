#pragma once

#include "python/walk_graph.h"

namespace lowtide::walk {

// Learns PyTorch's layout from probes (see python/lowtide/_census.py); nullptr, or what could not be learnt.
// What was learnt until then stays in use.
const char* Learn(PyObject* probes);

// Growth between two censuses as a list of dicts of plain values; new reference, nullptr with an exception
// set.
PyObject* CompareRows(const Census& before, const Census& after, int64_t least_bytes, size_t most);

// The ways in which roots hold the object, shortest first, as lists of steps.
PyObject* PathRows(const Census& census, PyObject* object, size_t most);

}  // namespace lowtide::walk
