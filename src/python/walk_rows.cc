#include <algorithm>
#include <memory>
#include <unordered_map>

#include "heap/beside.h"
#include "heap/growth.h"
#include "heap/paths.h"
#include "python/walk_label.h"
#include "python/walk_module.h"

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

// A dict of plain values that is built up step by step and never leaves an error behind unseen.
class Row {
 public:
  Row() : dict_(PyDict_New()) {}
  void Set(const char* key, PyObject* stolen) {
    if (dict_ && stolen) PyDict_SetItemString(dict_, key, stolen);
    Py_XDECREF(stolen);
  }
  void Set(const char* key, const std::string& text) {
    Set(key, PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
  }
  void Set(const char* key, int64_t number) { Set(key, PyLong_FromLongLong(number)); }
  PyObject* Release() { return dict_; }

 private:
  PyObject* dict_;
};

PyObject* LabelRow(const Label& label) {
  Row row;
  row.Set("op", label.op);
  row.Set("text", label.text);
  row.Set("type", label.type);
  if (!label.owner.empty()) row.Set("owner", label.owner);
  if (!label.file.empty()) row.Set("file", label.file);
  if (label.first_line) row.Set("first_line", int64_t{label.first_line});
  if (label.line) row.Set("line", int64_t{label.line});
  return row.Release();
}

void Append(PyObject* list, PyObject* stolen) {
  if (stolen) PyList_Append(list, stolen);
  Py_XDECREF(stolen);
}

// Steps from the root over `nodes`, the edges being those of the path tree.
PyObject* Steps(const Census& census, const heap::PathTree& paths, const std::vector<NodeId>& nodes,
                size_t count) {
  PyObject* list = PyList_New(0);
  if (!list || nodes.empty()) return list;
  Append(list, LabelRow(DescribeRoot(census, census.graph.roots[paths.root[nodes[0]]])));
  for (size_t i = 0; i + 1 < count; ++i) {
    Append(list, LabelRow(Describe(census, nodes, i, paths.edge[nodes[i + 1]])));
  }
  return list;
}

void SetAmount(Row* row, const char* key, const heap::Amount& amount) {
  Row inner;
  inner.Set("host", amount.host);
  inner.Set("cpu", amount.cpu);
  inner.Set("shared", amount.shared);
  for (size_t i = 0; i < amount.device.size(); ++i) {
    if (amount.device[i]) inner.Set(("cuda:" + std::to_string(i)).c_str(), amount.device[i]);
  }
  inner.Set("tensors", amount.tensors);
  inner.Set("autograd", amount.autograd);
  inner.Set("objects", amount.objects);
  row->Set(key, inner.Release());
}

// The types of what entered, by count, for each row.
using Histogram = std::unordered_map<uint32_t, std::pair<int64_t, NodeId>>;  // type -> count, one of them

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

PyObject* TypeRows(const Census& census, const Histogram& types) {
  std::vector<std::pair<int64_t, NodeId>> sorted;
  for (const auto& [type, entry] : types) sorted.push_back(entry);
  std::sort(sorted.rbegin(), sorted.rend());
  PyObject* list = PyList_New(0);
  for (size_t i = 0; list && i < sorted.size() && i < 24; ++i) {
    Append(list, Py_BuildValue("(sL)", TypeText(census, sorted[i].second).c_str(),
                               static_cast<long long>(sorted[i].first)));
  }
  return list;
}

heap::Amount Sum(const heap::Mark& mark, const std::vector<std::vector<NodeId>>& groups, size_t at,
                 const std::vector<heap::Amount>& amounts, const std::vector<size_t>& offsets) {
  (void)mark;
  heap::Amount sum;
  for (size_t i = 0; i < groups[at].size(); ++i) sum += amounts[offsets[at] + i];
  return sum;
}

std::vector<heap::Amount> GroupAmounts(const heap::Mark& mark,
                                       const std::vector<std::vector<NodeId>>& groups) {
  std::vector<NodeId> all;
  std::vector<size_t> offsets;
  for (const auto& group : groups) {
    offsets.push_back(all.size());
    all.insert(all.end(), group.begin(), group.end());
  }
  const std::vector<heap::Amount> amounts = heap::Amounts(mark, all);
  std::vector<heap::Amount> sums;
  for (size_t i = 0; i < groups.size(); ++i) sums.push_back(Sum(mark, groups, i, amounts, offsets));
  return sums;
}

PyObject* GrowthRow(const Census& after, const heap::PathTree& paths, const heap::Growth& growth,
                    const Histogram& types) {
  Row row;
  const NodeId end = growth.sample != heap::kNone ? growth.sample : growth.holder;
  const std::vector<NodeId> nodes = heap::PathTo(paths, end);
  const size_t holder_at =
      growth.holder == heap::kNone
          ? 0
          : static_cast<size_t>(std::find(nodes.begin(), nodes.end(), growth.holder) - nodes.begin());
  // Up to the slot of the holder through which it grew; what lies behind it is told apart.
  const size_t shown = std::min(nodes.size(), holder_at + 2);
  row.Set("path", Steps(after, paths, nodes, growth.holder == heap::kNone ? 1 : shown));
  PyObject* inside = PyList_New(0);
  for (size_t i = shown ? shown - 1 : 0; inside && i + 1 < nodes.size() && i < shown + 40; ++i) {
    Append(inside, LabelRow(Describe(after, nodes, i, paths.edge[nodes[i + 1]])));
  }
  row.Set("inside", inside);
  row.Set("bytes", growth.bytes);
  row.Set("members", growth.members);
  row.Set("slots", int64_t{growth.slots});
  if (growth.holder != heap::kNone) {
    row.Set("holder_type", TypeText(after, growth.holder));
    row.Set("holder_retained", static_cast<int64_t>(after.tree.retained[growth.holder]));
    const Kind kind = after.graph.kind[growth.holder];
    row.Set("container", PyBool_FromLong(kind == Kind::kSequence || kind == Kind::kMapping));
  }
  if (growth.sample != heap::kNone) {
    row.Set("sample_type", TypeText(after, growth.sample));
    row.Set("sample_retained", static_cast<int64_t>(after.tree.retained[growth.sample]));
  }
  row.Set("types", TypeRows(after, types));
  return row.Release();
}

}  // namespace

PyObject* CompareRows(const Census& before, const heap::PathTree& old_paths, Census* now, int64_t least_bytes,
                      size_t most) {
  const Census& after = *now;
  heap::PathTree paths;
  heap::Beside search([&] { paths = heap::ShortestPaths(after.graph); });
  FindDominators(now);
  search.Wait();
  const heap::Mark old_mark = MarkOf(before, old_paths), mark = MarkOf(after, paths);
  std::vector<heap::Growth> growths = heap::CompareMarks(old_mark, mark, least_bytes);
  if (growths.size() > most) growths.resize(most);
  const std::vector<Histogram> types = TypesEntered(after, growths);
  std::vector<std::vector<NodeId>> entered, left;
  for (const heap::Growth& growth : growths) {
    entered.push_back(growth.entered);
    left.push_back(growth.left);
  }
  std::vector<heap::Amount> amounts = GroupAmounts(mark, entered), gone = GroupAmounts(old_mark, left);
  PyObject* rows = PyList_New(0);
  for (size_t i = 0; rows && i < growths.size(); ++i) {
    PyObject* dict = GrowthRow(after, paths, growths[i], types[i]);
    if (!dict) continue;
    amounts[i] -= gone[i];
    Row holder;
    SetAmount(&holder, "amount", amounts[i]);
    PyObject* made = holder.Release();
    PyDict_Update(dict, made);
    Py_DECREF(made);
    Append(rows, dict);
  }
  return rows;
}

PyObject* PathRows(const Census& census, PyObject* object, size_t most) {
  PyObject* rows = PyList_New(0);
  const NodeId node = census.map.Find(reinterpret_cast<uint64_t>(object));
  if (!rows || node == heap::kNone) return rows;
  const heap::PathTree paths = heap::ShortestPaths(census.graph);
  // One path through each of the object's holders, the shortest first.
  std::vector<std::pair<size_t, std::pair<NodeId, uint64_t>>> ways;
  for (NodeId v = 0; v < census.graph.size(); ++v) {
    if (paths.root[v] == heap::kNone) continue;
    for (uint64_t e = census.graph.first[v]; e < census.graph.first[v + 1]; ++e) {
      if (census.graph.to[e] != node) continue;
      ways.push_back({heap::PathTo(paths, v).size(), {v, e}});
      break;
    }
  }
  std::sort(ways.begin(), ways.end());
  for (const heap::Root& root : census.graph.roots) {
    if (root.node == node) Append(rows, Steps(census, paths, {node}, 1));
  }
  for (size_t i = 0; i < ways.size() && i < most; ++i) {
    std::vector<NodeId> nodes = heap::PathTo(paths, ways[i].second.first);
    if (std::find(nodes.begin(), nodes.end(), node) != nodes.end())
      continue;  // a way through the object itself
    PyObject* steps = Steps(census, paths, nodes, nodes.size());
    nodes.push_back(node);
    if (steps) Append(steps, LabelRow(Describe(census, nodes, nodes.size() - 2, ways[i].second.second)));
    Append(rows, steps);
  }
  return rows;
}

}  // namespace lowtide::walk
