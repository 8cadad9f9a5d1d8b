#include "python/walk_compare.h"

#include "heap/array.h"
#include "heap/beside.h"

namespace lowtide::walk {
namespace {

heap::Mark MarkOf(const Census& census, const heap::PathTree& paths) {
  heap::Mark mark;
  mark.graph = &census.graph;
  mark.tree = &census.tree;
  mark.paths = &paths;
  mark.address = &census.address;
  mark.map = &census.map;
  mark.type = &census.type;
  mark.device = &census.device;
  return mark;
}

// The types of what entered, by count, for each row.
std::vector<Histogram> TypesEntered(const Census& census, const std::vector<heap::Growth>& growths) {
  std::vector<Histogram> result(growths.size());
  heap::Array<uint32_t> owner(census.graph.size(), heap::kNone), top(census.graph.size(), heap::kNone);
  for (uint32_t i = 0; i < growths.size(); ++i) {
    for (NodeId node : growths[i].entered) top[node] = i;
  }
  for (NodeId v : census.tree.order) {
    const NodeId up = census.tree.idom[v];
    owner[v] = top[v] != heap::kNone ? top[v] : up == census.tree.root() ? heap::kNone : owner[up];
    if (owner[v] == heap::kNone) continue;
    auto& entry = result[owner[v]][census.type[v]];
    ++entry.first;
    entry.second = v;
  }
  return result;
}

// The sum over each group, in one pass over the graph.
std::vector<heap::Amount> GroupAmounts(const heap::Mark& mark, const std::vector<std::vector<NodeId>>& groups) {
  std::vector<NodeId> all;
  for (const auto& group : groups) all.insert(all.end(), group.begin(), group.end());
  const std::vector<heap::Amount> amounts = heap::Amounts(mark, all);
  std::vector<heap::Amount> sums(groups.size());
  size_t at = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (size_t k = 0; k < groups[i].size(); ++k) sums[i] += amounts[at++];
  }
  return sums;
}

}  // namespace

void Prepare(Census* before, heap::PathTree* paths) {
  FindDominators(before);
  before->map.Fill(before->address);
  *paths = heap::ShortestPaths(before->graph);
}

Comparison Compare(const Census& before, const heap::PathTree& old_paths, Census* now, int64_t least_bytes, size_t most) {
  const Census& after = *now;
  Comparison result;
  heap::Beside search([&] { result.paths = heap::ShortestPaths(after.graph); });
  FindDominators(now);
  search.Wait();
  const heap::Mark old_mark = MarkOf(before, old_paths), mark = MarkOf(after, result.paths);
  result.growths = heap::CompareMarks(old_mark, mark, least_bytes);
  if (result.growths.size() > most) result.growths.resize(most);
  result.types = TypesEntered(after, result.growths);
  std::vector<std::vector<NodeId>> entered, left;
  for (const heap::Growth& growth : result.growths) {
    entered.push_back(growth.entered);
    left.push_back(growth.left);
  }
  result.amounts = GroupAmounts(mark, entered);
  const std::vector<heap::Amount> gone = GroupAmounts(old_mark, left);
  for (size_t i = 0; i < gone.size(); ++i) result.amounts[i] -= gone[i];
  return result;
}

}  // namespace lowtide::walk
