#include "heap/dominators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "heap/testing_graph_test.h"

namespace lowtide::heap {
namespace {

// What the roots reach when `without` is taken out of the graph.
std::vector<bool> ReachWithout(const ObjectGraph& graph, NodeId without) {
  std::vector<bool> seen(graph.size(), false);
  std::vector<NodeId> stack;
  for (const Root& root : graph.roots) {
    if (root.node != without && !seen[root.node]) {
      seen[root.node] = true;
      stack.push_back(root.node);
    }
  }
  while (!stack.empty()) {
    const NodeId v = stack.back();
    stack.pop_back();
    for (uint64_t e = graph.first[v]; e < graph.first[v + 1]; ++e) {
      const NodeId to = graph.to[e];
      if (to == without || seen[to]) continue;
      seen[to] = true;
      stack.push_back(to);
    }
  }
  return seen;
}

// The definition itself: u dominates v when v is reached, but not without u; the immediate one is the
// dominator that all other dominators of v dominate. Retained bytes: what is no longer reached once v is
// gone.
void ExpectDominatorsByDeletion(const ObjectGraph& graph) {
  const NodeId n = graph.size();
  const DominatorTree tree = BuildDominators(graph);
  const std::vector<bool> reached = ReachWithout(graph, kNone);
  std::vector<std::vector<bool>> without;
  for (NodeId u = 0; u < n; ++u) without.push_back(ReachWithout(graph, u));
  for (NodeId v = 0; v < n; ++v) {
    if (!reached[v]) {
      EXPECT_EQ(tree.idom[v], kNone);
      continue;
    }
    std::vector<NodeId> dominators;  // of v, without v
    for (NodeId u = 0; u < n; ++u) {
      if (u != v && reached[u] && !without[u][v]) dominators.push_back(u);
    }
    NodeId immediate = tree.root();
    for (NodeId u : dominators) {
      const bool nearest = std::all_of(dominators.begin(), dominators.end(),
                                       [&](NodeId w) { return w == u || !without[w][u]; });
      if (nearest) immediate = u;
    }
    ASSERT_EQ(tree.idom[v], immediate) << "node " << v << " of " << n;
    uint64_t lost = 0;
    for (NodeId w = 0; w < n; ++w) lost += reached[w] && (w == v || !without[v][w]) ? graph.bytes[w] : 0;
    ASSERT_EQ(tree.retained[v], lost) << "node " << v;
  }
}

TEST(Dominators, AllGraphsOfThreeNodesAndAllSetsOfRoots) {
  for (uint32_t edges = 0; edges < 1u << 9; ++edges) {
    std::vector<std::vector<NodeId>> targets(3);
    for (NodeId i = 0; i < 9; ++i) {
      if (edges >> i & 1) targets[i / 3].push_back(i % 3);
    }
    for (uint32_t roots = 0; roots < 8; ++roots) {
      std::vector<NodeId> chosen;
      for (NodeId v = 0; v < 3; ++v) {
        if (roots >> v & 1) chosen.push_back(v);
      }
      ExpectDominatorsByDeletion(MakeGraph(targets, chosen));
    }
  }
}

TEST(Dominators, AllGraphsOfFourNodesWithoutLoops) {
  for (uint32_t edges = 0; edges < 1u << 12; ++edges) {
    std::vector<std::vector<NodeId>> targets(4);
    for (NodeId i = 0, bit = 0; i < 4; ++i) {
      for (NodeId j = 0; j < 4; ++j) {
        if (i != j && edges >> bit++ & 1) targets[i].push_back(j);
      }
    }
    ExpectDominatorsByDeletion(MakeGraph(targets, {0}));
    ExpectDominatorsByDeletion(MakeGraph(targets, {0, 3}));
  }
}

TEST(Dominators, RandomGraphs) {
  std::mt19937 random(7);
  for (int round = 0; round < 1500; ++round) {
    const NodeId n = 5 + random() % 25;
    std::vector<std::vector<NodeId>> targets(n);
    const uint32_t edges = random() % (4 * n);
    for (uint32_t e = 0; e < edges; ++e) targets[random() % n].push_back(random() % n);
    std::vector<NodeId> roots;
    for (uint32_t r = 0; r <= random() % 3; ++r) roots.push_back(random() % n);
    ObjectGraph graph = MakeGraph(targets, roots);
    for (uint64_t& bytes : graph.bytes) bytes = random() % 100;
    ExpectDominatorsByDeletion(graph);
  }
}

TEST(Dominators, OneLargeGraph) {
  std::mt19937 random(11);
  std::vector<std::vector<NodeId>> targets(800);
  for (int e = 0; e < 1200; ++e) targets[random() % 800].push_back(random() % 800);
  ExpectDominatorsByDeletion(MakeGraph(targets, {0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Dominators, ALongChainNeedsNoDeepStack) {
  const NodeId n = 2'000'000;
  std::vector<std::vector<NodeId>> targets(n);
  for (NodeId v = 0; v + 1 < n; ++v) targets[v] = {v + 1};
  const DominatorTree tree = BuildDominators(MakeGraph(targets, {0}));
  EXPECT_EQ(tree.idom[n - 1], n - 2);
  EXPECT_EQ(tree.retained[0], n);
}

TEST(Islands, EveryUnreachedNodeIsReachedFromAnEntry) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const NodeId n = 1 + random() % 12;
    std::vector<std::vector<NodeId>> targets(n);
    for (uint32_t e = 0; e < random() % (3 * n + 1); ++e) targets[random() % n].push_back(random() % n);
    ObjectGraph graph = MakeGraph(targets, {});
    const std::vector<NodeId> entries = IslandEntries(graph, [](NodeId) { return false; });
    for (NodeId entry : entries) {
      Root root;
      root.node = entry;
      graph.roots.push_back(root);
    }
    const std::vector<bool> all = ReachWithout(graph, kNone);
    EXPECT_EQ(std::count(all.begin(), all.end(), true), static_cast<long>(n));
    for (size_t i = 0; i < entries.size(); ++i) {  // and none of them is superfluous
      ObjectGraph fewer = MakeGraph(targets, {});
      for (size_t j = 0; j < entries.size(); ++j) {
        Root root;
        root.node = entries[j];
        if (j != i) fewer.roots.push_back(root);
      }
      EXPECT_FALSE(ReachWithout(fewer, kNone)[entries[i]]);
    }
  }
}

}  // namespace
}  // namespace lowtide::heap
