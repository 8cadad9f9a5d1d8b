#pragma once

#include <functional>
#include <vector>

#include "heap/graph.h"

namespace lowtide::heap {

// Who must be let go so that a node dies. `idom[v]` is the one node through which every path from the roots
// to v passes last; graph.size() stands for "the roots together", kNone for a node that no root reaches.
// `retained[v]` is what would be freed with v: its own bytes and those of all that it dominates.
struct DominatorTree {
  Array<NodeId> idom;
  Array<uint64_t> retained;
  Array<NodeId> order;  // the nodes that are reached, parents (in the depth-first tree) before children

  NodeId root() const { return static_cast<NodeId>(idom.size()); }
};

// Depth-first numbering of what the roots reach; roots can be added while it stands, which is how nodes that
// only a weak edge, C code or nothing at all reaches are told apart from the others.
class Reach {
 public:
  explicit Reach(const ObjectGraph& graph);

  void AddRoot(NodeId node);
  bool Reached(NodeId node) const { return number_[node] != 0; }
  size_t Count() const { return order_.size(); }
  size_t Bytes() const { return sizeof(uint32_t) * (number_.size() + parent_.size() + order_.size()); }

  // Semi-NCA (Georgiadis: "Linear-Time Algorithms for Dominators and Related Problems", 2005). Ends this
  // object.
  DominatorTree Dominators();

 private:
  void Visit(NodeId node);

  const ObjectGraph& graph_;
  Array<uint32_t> number_;  // 1-based preorder; 0: not reached; the virtual root is 0
  Array<uint32_t> parent_;  // by number
  Array<NodeId> order_;
  std::vector<uint32_t> root_numbers_;
  std::vector<std::pair<NodeId, uint64_t>> stack_;
};

// One node of each group of unreached nodes from which the rest of them can be reached, so that together they
// reach all; nodes of one group reach each other.
std::vector<NodeId> IslandEntries(const ObjectGraph& graph, const std::function<bool(NodeId)>& reached);

// Reaches from graph.roots in their order, then from `islands` of what is left, which are appended to
// graph.roots.
DominatorTree BuildDominators(const ObjectGraph& graph);

}  // namespace lowtide::heap
