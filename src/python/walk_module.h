#pragma once

#include "python/walk_compare.h"
#include "python/walk_graph.h"

namespace lowtide::walk {

// Learns PyTorch's layout from probes (see python/lowtide/_census.py); nullptr, or what could not be learnt.
// What was learnt until then stays in use.
const char* Learn(PyObject* probes);

// The growths of a comparison as a list of dicts of plain values; new reference, nullptr with an exception set.
// `gone_bytes`: nullptr when the program has stood still since the census. Otherwise nothing is told of what is gone by
// now, its bytes are added there, and nodes may stand for what has taken their place.
PyObject* CompareRows(Census* after, Comparison& comparison, int64_t* gone_bytes);

// The ways in which roots hold the object, shortest first, as lists of steps.
PyObject* PathRows(const Census& census, PyObject* object, size_t most);

}  // namespace lowtide::walk
