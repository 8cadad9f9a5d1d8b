#include "heap/dominators.h"

#include <algorithm>
#include <utility>

namespace lowtide::heap {

Reach::Reach(const ObjectGraph& graph) : graph_(graph), number_(graph.size(), 0) {
  order_.reserve(graph.size());
  parent_.reserve(graph.size() + 1);
  parent_.push_back(0);
}

void Reach::Visit(NodeId node) {
  order_.push_back(node);
  number_[node] = static_cast<uint32_t>(order_.size());
  stack_.emplace_back(node, graph_.first[node]);
}

void Reach::AddRoot(NodeId node) {
  if (number_[node]) {
    root_numbers_.push_back(number_[node]);
    return;
  }
  Visit(node);
  parent_.push_back(0);
  root_numbers_.push_back(number_[node]);
  while (!stack_.empty()) {
    auto& [from, edge] = stack_.back();
    if (edge == graph_.first[from + 1]) {
      stack_.pop_back();
      continue;
    }
    const NodeId to = graph_.to[edge++];
    if (number_[to]) continue;
    const uint32_t parent = number_[from];  // before Visit moves the stack
    Visit(to);
    parent_.push_back(parent);
  }
}

namespace {

// Predecessors of every reached node, by preorder number, in compressed rows.
struct Predecessors {
  Array<uint32_t> first, from;
};

// Goes through the edges in the order in which they lie in memory; what they lead to is fetched ahead.
template <typename Function>
void ForEachEdge(const ObjectGraph& graph, const Array<uint32_t>& number, Function function) {
  constexpr uint64_t kAhead = 24;
  const uint64_t edges = graph.to.size();
  for (NodeId node = 0; node < graph.size(); ++node) {
    if (!number[node]) continue;
    for (uint64_t e = graph.first[node]; e < graph.first[node + 1]; ++e) {
      if (e + kAhead < edges) __builtin_prefetch(&number[graph.to[e + kAhead]]);
      function(number[node], number[graph.to[e]]);
    }
  }
}

Predecessors Reverse(const ObjectGraph& graph, size_t count, const Array<uint32_t>& number) {
  Predecessors back;
  back.first.assign(count + 2, 0);
  ForEachEdge(graph, number, [&](uint32_t, uint32_t to) { ++back.first[to + 1]; });
  for (size_t i = 1; i < back.first.size(); ++i) back.first[i] += back.first[i - 1];
  back.from.resize(back.first.back());
  Array<uint32_t> at(back.first.begin(), back.first.end() - 1);
  ForEachEdge(graph, number, [&](uint32_t from, uint32_t to) { back.from[at[to]++] = from; });
  return back;
}

// The link-eval forest of Semi-NCA with path compression, by preorder number.
class Forest {
 public:
  explicit Forest(const Array<uint32_t>& parent) : ancestor_(parent), label_(parent.size()) {
    for (uint32_t v = 0; v < label_.size(); ++v) label_[v] = v;
  }

  // The node of least semidominator on the way from v to the last linked node; nodes numbered above `linked`
  // are in.
  uint32_t Eval(uint32_t v, uint32_t linked, const Array<uint32_t>& semi) {
    if (ancestor_[v] > linked) Compress(v, linked, semi);
    return label_[v];
  }

 private:
  void Compress(uint32_t v, uint32_t linked, const Array<uint32_t>& semi) {
    path_.clear();
    for (; ancestor_[v] > linked; v = ancestor_[v]) path_.push_back(v);
    for (size_t i = path_.size(); i-- > 0;) {
      const uint32_t w = path_[i];
      const uint32_t up = ancestor_[w];
      if (semi[label_[up]] < semi[label_[w]]) label_[w] = label_[up];
      ancestor_[w] = ancestor_[up];
    }
  }

  Array<uint32_t> ancestor_, label_;
  std::vector<uint32_t> path_;
};

}  // namespace

DominatorTree Reach::Dominators() {
  const uint32_t count = static_cast<uint32_t>(order_.size());
  const Predecessors back = Reverse(graph_, order_.size(), number_);
  Array<uint32_t> semi(count + 1), idom(parent_);
  for (uint32_t v = 0; v <= count; ++v) semi[v] = v;
  Forest forest(parent_);
  std::vector<bool> is_root(count + 1, false);
  for (uint32_t v : root_numbers_) is_root[v] = true;
  for (uint32_t v = count; v > 0; --v) {
    uint32_t least = is_root[v] ? 0 : parent_[v];
    for (uint32_t i = back.first[v]; least > 0 && i < back.first[v + 1]; ++i) {
      const uint32_t u = back.from[i];
      least = std::min(least, u <= v ? u : semi[forest.Eval(u, v, semi)]);
    }
    semi[v] = least;
  }
  DominatorTree tree;
  tree.idom.assign(graph_.size(), kNone);
  for (uint32_t v = 1; v <= count; ++v) {
    while (idom[v] > semi[v]) idom[v] = idom[idom[v]];
    tree.idom[order_[v - 1]] = idom[v] ? order_[idom[v] - 1] : tree.root();
  }
  tree.retained = graph_.bytes;
  for (uint32_t v = count; v > 0; --v) {
    if (idom[v]) tree.retained[order_[idom[v] - 1]] += tree.retained[order_[v - 1]];
  }
  tree.order = std::move(order_);
  return tree;
}

std::vector<NodeId> IslandEntries(const ObjectGraph& graph, const std::function<bool(NodeId)>& reached) {
  // The last node to finish in a depth-first search of what is left cannot be reached from a group it does
  // not reach itself (Kosaraju): taking nodes in reverse order of finishing gives one entry to each source
  // group.
  std::vector<NodeId> finished;
  std::vector<bool> seen(graph.size(), false);
  std::vector<std::pair<NodeId, uint64_t>> stack;
  const auto search = [&](NodeId start, bool record) {
    seen[start] = true;
    stack.emplace_back(start, graph.first[start]);
    while (!stack.empty()) {
      auto& [node, edge] = stack.back();
      if (edge == graph.first[node + 1]) {
        if (record) finished.push_back(node);
        stack.pop_back();
        continue;
      }
      const NodeId to = graph.to[edge++];
      if (seen[to] || reached(to)) continue;
      seen[to] = true;
      stack.emplace_back(to, graph.first[to]);
    }
  };
  for (NodeId v = 0; v < graph.size(); ++v) {
    if (!seen[v] && !reached(v)) search(v, true);
  }
  seen.assign(graph.size(), false);
  std::vector<NodeId> entries;
  for (size_t i = finished.size(); i-- > 0;) {
    if (seen[finished[i]]) continue;
    entries.push_back(finished[i]);
    search(finished[i], false);
  }
  return entries;
}

DominatorTree BuildDominators(const ObjectGraph& graph) {
  Reach reach(graph);
  for (const Root& root : graph.roots) reach.AddRoot(root.node);
  return reach.Dominators();
}

}  // namespace lowtide::heap
