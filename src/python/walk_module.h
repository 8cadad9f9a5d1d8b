#pragma once

#include "heap/paths.h"
#include "python/walk_graph.h"

namespace lowtide::walk {

// Learns PyTorch's layout from probes (see python/lowtide/_census.py); nullptr, or what could not be learnt.
// What was learnt until then stays in use.
const char* Learn(PyObject* probes);

// Growth between two censuses (of the earlier one with its shortest paths; of the later one the dominators are found
// here) as a list of dicts of plain values; new reference, nullptr with an exception set.
PyObject* CompareRows(const Census& before, const heap::PathTree& old_paths, Census* now, int64_t least_bytes,
                      size_t most);

// The ways in which roots hold the object, shortest first, as lists of steps.
PyObject* PathRows(const Census& census, PyObject* object, size_t most);

}  // namespace lowtide::walk
