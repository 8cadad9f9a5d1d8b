#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "heap/growth.h"
#include "heap/paths.h"
#include "python/walk_graph.h"

namespace lowtide::walk {

using Histogram = std::unordered_map<uint32_t, std::pair<int64_t, NodeId>>;  // type -> count, one node of it

// What came in between two censuses, in ids of the later one. To be told by labels (walk_rows.cc), which need the
// interpreter; this does not.
struct Comparison {
  heap::PathTree paths;                // of the later census
  std::vector<heap::Growth> growths;   // largest first
  std::vector<Histogram> types;        // of what entered, for each growth
  std::vector<heap::Amount> amounts;   // what entered less what left, for each growth
};

// The dominators of the earlier census, its map and its shortest paths.
void Prepare(Census* before, heap::PathTree* paths);

// Finds the dominators of `after` as well. Reads and writes nothing but the two censuses: it may run while the program
// goes on, so long as nobody else uses them. `least_bytes`, `most`: of growths.
Comparison Compare(const Census& before, const heap::PathTree& old_paths, Census* after, int64_t least_bytes, size_t most);

}  // namespace lowtide::walk
