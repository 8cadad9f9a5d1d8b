#include <algorithm>
#include <memory>

#include "heap/growth.h"
#include "heap/paths.h"
#include "python/walk_alive.h"
#include "python/walk_compare.h"
#include "python/walk_label.h"
#include "python/walk_module.h"

namespace lowtide::walk {
namespace {

constexpr size_t kMostTypes = 24, kMostInside = 40;  // that a row tells
constexpr size_t kMostProbes = 16;
constexpr int kMostRounds = 3;                        // of looking for other ways to what is still there

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

PyObject* TypeRows(const Census& census, const Histogram& types, const Alive* alive) {
  std::vector<std::pair<int64_t, NodeId>> sorted;
  for (const auto& [type, entry] : types) sorted.push_back(entry);
  std::sort(sorted.rbegin(), sorted.rend());
  PyObject* list = PyList_New(0);
  for (size_t i = 0; list && i < sorted.size() && i < kMostTypes; ++i) {
    const NodeId node = sorted[i].second;
    if (alive && census.origin[node] == Origin::kPython && !alive->Type(census.type[node])) continue;
    Append(list, Py_BuildValue("(sL)", TypeText(census, node).c_str(), static_cast<long long>(sorted[i].first)));
  }
  return list;
}

// From `node` down to the container in it that holds nearly all it retains, by the ways a reader would write;
// empty where there is none.
std::vector<NodeId> DownToContainer(const Census& census, const heap::PathTree& paths, NodeId node) {
  constexpr size_t kDeepest = 8;
  constexpr uint64_t kItems = 4;
  const heap::ObjectGraph& graph = census.graph;
  const auto& retained = census.tree.retained;
  std::vector<NodeId> nodes{node};
  while (nodes.size() < kDeepest) {
    const NodeId at = nodes.back();
    NodeId largest = heap::kNone;
    for (uint64_t e = graph.first[at]; e < graph.first[at + 1]; ++e) {
      const NodeId child = graph.to[e];
      if (paths.parent[child] != at || paths.edge[child] != e) continue;
      if (largest == heap::kNone || retained[child] > retained[largest]) largest = child;
    }
    if (largest == heap::kNone) return {};
    if (retained[largest] < retained[at] * 0.8) {
      const Kind kind = graph.kind[at];
      const bool many = graph.first[at + 1] - graph.first[at] >= kItems;
      return many && (kind == Kind::kSequence || kind == Kind::kMapping) ? nodes : std::vector<NodeId>();
    }
    nodes.push_back(largest);
  }
  return {};
}

// The nodes that a growth's row speaks of.
struct Places {
  std::vector<NodeId> path;  // from a root to the holder, and on to the sample
  std::vector<NodeId> below;  // from the sample down
  size_t holder_at = 0;
};

Places PlacesOf(const Census& after, const heap::PathTree& paths, const heap::Growth& growth) {
  Places places;
  const bool sample = growth.sample != heap::kNone;
  places.path = heap::PathTo(paths, sample ? growth.sample : growth.holder);
  const auto holder = std::find(places.path.begin(), places.path.end(), growth.holder);
  if (growth.holder != heap::kNone) places.holder_at = static_cast<size_t>(holder - places.path.begin());
  if (sample) places.below = DownToContainer(after, paths, growth.sample);
  return places;
}

std::vector<Places> AllPlaces(const Census& after, const Comparison& comparison) {
  std::vector<Places> places;
  for (const heap::Growth& growth : comparison.growths) places.push_back(PlacesOf(after, comparison.paths, growth));
  return places;
}

// Some of what entered, by which is told whether a holder has been emptied since.
template <typename Function>
void ForProbes(const Census& census, const heap::Growth& growth, Function function) {
  const size_t step = growth.entered.size() / kMostProbes + 1;
  for (size_t i = 0; i < growth.entered.size(); i += step) {
    if (census.origin[growth.entered[i]] == Origin::kPython) function(growth.entered[i]);
  }
}

bool Emptied(const Census& census, const Alive& alive, const heap::Growth& growth) {
  size_t looked = 0, there = 0;
  ForProbes(census, growth, [&](NodeId node) { ++looked, there += alive.There(node); });
  return looked > 0 && there == 0;
}

// Leaves of the places what is still there. Whether that is enough to tell of.
bool KeepAlive(const Census& census, const Alive& alive, const heap::Growth& growth, Places* places) {
  const size_t kept = alive.Prefix(places->path);
  if (kept <= places->holder_at) return false;  // the holder itself is gone: what it held is no leak
  const bool whole = kept == places->path.size();
  if (!whole && Emptied(census, alive, growth)) return false;
  places->path.resize(kept);
  places->below.resize(whole && growth.sample != heap::kNone ? alive.Prefix(places->below) : 0);
  return true;
}

PyObject* LabelsOf(const Census& census, const heap::PathTree& paths, const std::vector<NodeId>& nodes, size_t from, size_t to) {
  PyObject* list = PyList_New(0);
  for (size_t i = from; list && i + 1 < nodes.size() && i < to; ++i) {
    Append(list, LabelRow(Describe(census, nodes, i, paths.edge[nodes[i + 1]])));
  }
  return list;
}

PyObject* GrowthRow(const Census& after, const Comparison& comparison, size_t at, const Places& places, const Alive* alive) {
  const heap::Growth& growth = comparison.growths[at];
  const heap::PathTree& paths = comparison.paths;
  Row row;
  const std::vector<NodeId>& nodes = places.path;
  // Up to the slot of the holder through which it grew; what lies behind it is told apart.
  const size_t shown = std::min(nodes.size(), places.holder_at + 2);
  row.Set("path", Steps(after, paths, nodes, growth.holder == heap::kNone ? 1 : shown));
  row.Set("inside", LabelsOf(after, paths, nodes, shown ? shown - 1 : 0, shown + kMostInside));
  const bool sample = growth.sample != heap::kNone && !nodes.empty() && nodes.back() == growth.sample;
  if (sample) row.Set("below", LabelsOf(after, paths, places.below, 0, places.below.size()));
  row.Set("bytes", growth.bytes);
  row.Set("members", growth.members);
  row.Set("slots", int64_t{growth.slots});
  if (growth.holder != heap::kNone) {
    row.Set("holder_type", TypeText(after, growth.holder));
    row.Set("holder_retained", static_cast<int64_t>(after.tree.retained[growth.holder]));
    const Kind kind = after.graph.kind[growth.holder];
    row.Set("container", PyBool_FromLong(kind == Kind::kSequence || kind == Kind::kMapping));
  }
  if (sample) {
    row.Set("sample_type", TypeText(after, growth.sample));
    row.Set("sample_retained", static_cast<int64_t>(after.tree.retained[growth.sample]));
  }
  row.Set("types", TypeRows(after, comparison.types[at], alive));
  SetAmount(&row, "amount", comparison.amounts[at]);
  return row.Release();
}

// Marks the nodes that are gone and stand between a root and a holder that is still there; whether there are any.
bool FindGone(const Alive& alive, const Comparison& comparison, const std::vector<Places>& places, std::vector<bool>* gone) {
  bool any = false;
  for (size_t i = 0; i < places.size(); ++i) {
    const std::vector<NodeId>& path = places[i].path;
    const size_t kept = alive.Prefix(path);
    if (kept >= path.size() || kept > places[i].holder_at || !alive.There(comparison.growths[i].holder)) continue;
    gone->resize(comparison.paths.root.size(), false);
    any |= !(*gone)[path[kept]];
    (*gone)[path[kept]] = true;
  }
  return any;
}

std::unique_ptr<Alive> LookFor(Census* after, const Comparison& comparison, const std::vector<Places>& places) {
  auto alive = std::make_unique<Alive>(after, comparison.paths);
  for (size_t i = 0; i < places.size(); ++i) {
    alive->Want(places[i].path);
    alive->Want(places[i].below);
    ForProbes(*after, comparison.growths[i], [&](NodeId node) { alive->WantObject(node); });
    for (const auto& [type, entry] : comparison.types[i]) {
      if (after->origin[entry.second] == Origin::kPython) alive->WantType(type);
    }
  }
  alive->Look();
  return alive;
}

}  // namespace

PyObject* CompareRows(Census* now, Comparison& comparison, int64_t* gone_bytes) {
  const Census& after = *now;
  std::vector<Places> places = AllPlaces(after, comparison);
  std::unique_ptr<Alive> alive;
  std::vector<bool> gone;
  for (int round = 0; gone_bytes && round < kMostRounds; ++round) {
    if (round > 0) {  // a function has returned: the holder may be held in longer ways as well
      comparison.paths = heap::ShortestPaths(after.graph, gone);
      places = AllPlaces(after, comparison);
    }
    alive = LookFor(now, comparison, places);
    if (!FindGone(*alive, comparison, places, &gone)) break;
  }
  PyObject* rows = PyList_New(0);
  for (size_t i = 0; rows && i < places.size(); ++i) {
    if (alive && !KeepAlive(after, *alive, comparison.growths[i], &places[i])) {
      *gone_bytes += comparison.growths[i].bytes;
      continue;
    }
    Append(rows, GrowthRow(after, comparison, i, places[i], alive.get()));
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
