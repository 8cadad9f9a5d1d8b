#pragma once

#include <vector>

#include "heap/graph.h"

namespace lowtide::heap {

// The shortest way from the roots to every node, each root counting as `late` steps away; at equal length the
// earlier root wins.
struct PathTree {
  Array<NodeId> parent;  // kNone: a root, or not reached
  Array<uint64_t> edge;  // the edge from the parent
  Array<uint32_t> root;  // index into graph.roots; kNone: not reached
};

PathTree ShortestPaths(const ObjectGraph& graph);
// As if the nodes marked in `without` were not there.
PathTree ShortestPaths(const ObjectGraph& graph, const std::vector<bool>& without);

// The nodes from a root to `node`, both included; empty when it is not reached.
std::vector<NodeId> PathTo(const PathTree& paths, NodeId node);

}  // namespace lowtide::heap
