#pragma once

#include <vector>

#include "heap/address_map.h"
#include "heap/dominators.h"
#include "heap/graph.h"
#include "heap/growth.h"
#include "heap/paths.h"

namespace lowtide::heap {

// Graphs for tests, from adjacency lists; every node weighs one byte unless said otherwise.
inline ObjectGraph MakeGraph(const std::vector<std::vector<NodeId>>& targets,
                             const std::vector<NodeId>& roots) {
  ObjectGraph graph;
  for (const auto& row : targets) {
    uint16_t slot = 0;
    for (NodeId to : row) {
      graph.to.push_back(to);
      graph.slot.push_back(slot++);
    }
    graph.first.push_back(graph.to.size());
    graph.bytes.push_back(1);
    graph.kind.push_back(Kind::kObject);
  }
  for (NodeId root : roots) {
    Root entry;
    entry.node = root;
    graph.roots.push_back(entry);
  }
  return graph;
}

// A process seen at one moment: objects by address, what they refer to, and all that is worked out about
// them.
class World {
 public:
  // Objects are added by address; `held` are the addresses it refers to, in the order of its slots (0: empty
  // slot).
  void Add(uint64_t address, std::vector<uint64_t> held, Kind kind = Kind::kObject, uint64_t bytes = 1,
           uint32_t type = 0) {
    addresses_.push_back(address);
    held_.push_back(std::move(held));
    kinds_.push_back(kind);
    bytes_.push_back(bytes);
    types_.push_back(type ? type : static_cast<uint32_t>(kind) + 1);
  }

  Mark Finish(const std::vector<uint64_t>& roots) {
    for (NodeId v = 0; v < addresses_.size(); ++v) map_.Insert(addresses_[v], v);
    for (size_t v = 0; v < addresses_.size(); ++v) {
      for (size_t slot = 0; slot < held_[v].size(); ++slot) {
        if (!held_[v][slot]) continue;
        graph_.to.push_back(map_.Find(held_[v][slot]));
        graph_.slot.push_back(static_cast<uint16_t>(slot));
      }
      graph_.first.push_back(graph_.to.size());
    }
    graph_.bytes = bytes_;
    graph_.kind = kinds_;
    for (uint64_t root : roots) {
      Root entry;
      entry.node = map_.Find(root);
      graph_.roots.push_back(entry);
    }
    tree_ = BuildDominators(graph_);
    paths_ = ShortestPaths(graph_);
    devices_.assign(addresses_.size(), -1);
    Mark mark;
    mark.graph = &graph_, mark.tree = &tree_, mark.paths = &paths_, mark.address = &addresses_;
    mark.map = &map_, mark.type = &types_, mark.device = &devices_;
    return mark;
  }

  uint64_t AddressOf(NodeId node) const { return node == kNone ? 0 : addresses_[node]; }

 private:
  Array<uint64_t> addresses_, bytes_;
  std::vector<std::vector<uint64_t>> held_;
  Array<Kind> kinds_;
  Array<uint32_t> types_;
  Array<int16_t> devices_;
  ObjectGraph graph_;
  DominatorTree tree_;
  PathTree paths_;
  AddressMap map_;
};

}  // namespace lowtide::heap
