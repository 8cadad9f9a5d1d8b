#include "heap/paths.h"

#include <algorithm>

namespace lowtide::heap {

namespace {

template <typename Without>
PathTree Search(const ObjectGraph& graph, Without without) {
  PathTree paths;
  paths.parent.assign(graph.size(), kNone);
  paths.edge.assign(graph.size(), 0);
  paths.root.assign(graph.size(), kNone);
  Array<NodeId> queue;
  queue.reserve(graph.size());
  std::vector<uint32_t> by_lateness(graph.roots.size());
  for (uint32_t i = 0; i < by_lateness.size(); ++i) by_lateness[i] = i;
  std::stable_sort(by_lateness.begin(), by_lateness.end(),
                   [&](uint32_t a, uint32_t b) { return graph.roots[a].late < graph.roots[b].late; });
  size_t next_root = 0, head = 0;
  for (uint32_t level = 0; head < queue.size() || next_root < by_lateness.size(); ++level) {
    for (; next_root < by_lateness.size() && graph.roots[by_lateness[next_root]].late <= level; ++next_root) {
      const uint32_t root = by_lateness[next_root];
      const NodeId node = graph.roots[root].node;
      if (paths.root[node] != kNone || without(node)) continue;
      paths.root[node] = root;
      queue.push_back(node);
    }
    // Nodes of this level: those that the level before found, then this level's roots.
    const size_t roots_end = queue.size();
    for (; head < roots_end; ++head) {
      const NodeId node = queue[head];
      for (uint64_t e = graph.first[node]; e < graph.first[node + 1]; ++e) {
        const NodeId to = graph.to[e];
        if (paths.root[to] != kNone || without(to)) continue;
        paths.root[to] = paths.root[node];
        paths.parent[to] = node;
        paths.edge[to] = e;
        queue.push_back(to);
      }
    }
  }
  return paths;
}

}  // namespace

PathTree ShortestPaths(const ObjectGraph& graph) {
  return Search(graph, [](NodeId) { return false; });
}

PathTree ShortestPaths(const ObjectGraph& graph, const std::vector<bool>& without) {
  return Search(graph, [&](NodeId node) { return without[node]; });
}

std::vector<NodeId> PathTo(const PathTree& paths, NodeId node) {
  std::vector<NodeId> nodes;
  if (paths.root[node] == kNone) return nodes;
  for (; node != kNone; node = paths.parent[node]) nodes.push_back(node);
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

}  // namespace lowtide::heap
