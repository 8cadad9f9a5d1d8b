#include "python/walk_graph.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <unordered_map>

#include "python/walk_builder.h"

namespace lowtide::walk {

TorchLayout g_layout;

NativeReader& Reader() {
  static NativeReader reader;
  return reader;
}

namespace {
std::unordered_map<const void*, uint32_t>& Numbers() {
  static std::unordered_map<const void*, uint32_t> numbers;
  return numbers;
}
std::vector<const void*>& Numbered() {
  static std::vector<const void*> types;
  return types;
}
}  // namespace

uint32_t TypeNumber(const void* type) {
  const auto [at, fresh] = Numbers().try_emplace(type, static_cast<uint32_t>(Numbered().size()));
  if (fresh) Numbered().push_back(type);
  return at->second;
}

const void* TypeOfNumber(uint32_t number) {
  return number < Numbered().size() ? Numbered()[number] : nullptr;
}

namespace {
std::vector<bool>& StaticTypes() {
  static std::vector<bool> types;
  return types;
}
}  // namespace

void NoteStaticType(uint32_t number) {
  if (StaticTypes().size() <= number) StaticTypes().resize(number + 64, false);
  StaticTypes()[number] = true;
}

bool IsStaticType(uint32_t number) { return number < StaticTypes().size() && StaticTypes()[number]; }

// Of arrays only what is filled: the rest is address space.
uint64_t Census::MemoryBytes() const {
  const auto filled = [](const auto&... arrays) { return ((arrays.size() * sizeof(arrays[0])) + ...); };
  return filled(graph.first, graph.to, graph.slot, graph.bytes, graph.kind, address, type, origin, device,
                tree.idom, tree.retained, tree.order) +
         (reach ? reach->Bytes() : 0) + map.bytes();
}

uint64_t NativeAddress(const Census& census, NodeId node) {
  if (census.origin[node] == Origin::kNative) return census.address[node];
  if (census.origin[node] != Origin::kPython) return 0;
  PyObject* object = census.object(node);
  switch (census.graph.kind[node]) {
    case Kind::kTensor:
      return NativeOf(object, TypeInfo::Special::kTensor);
    case Kind::kStorage:
      return NativeOf(object, TypeInfo::Special::kStorage);
    case Kind::kAutograd:
      return Py_TYPE(object)->tp_traverse == g_layout.graph_traverse
                 ? NativeOf(object, TypeInfo::Special::kGraphNode)
                 : 0;
    default:
      return 0;
  }
}

namespace {

// Counts of references from unreached nodes to one of them, by who counts them.
struct Counted {
  uint32_t python = 0, native = 0;
};

bool HeldByMore(const Census& census, NodeId node, const Counted& counted) {
  PyObject* object = census.object(node);
  const int64_t more = static_cast<int64_t>(Py_REFCNT(object)) - counted.python;
  if (census.graph.kind[node] != Kind::kTensor) {
    return more > static_cast<int64_t>(counted.native);  // graph nodes and hooks hold Python objects
  }
  // A tensor's Python object and its TensorImpl each hold the other.
  const uint64_t native = NativeAddress(census, node);
  if (!native) return more > 0;
  const int64_t uses = static_cast<uint32_t>(WordAt(native, 8));
  return more > 1 || uses - 1 > static_cast<int64_t>(counted.native);
}

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

std::vector<NodeId> ForeignHeld(const Census& census, const heap::Reach& reach) {
  std::unordered_map<NodeId, Counted> counts;
  const heap::ObjectGraph& graph = census.graph;
  for (NodeId v = 0; v < graph.size(); ++v) {
    if (reach.Reached(v)) continue;
    for (uint64_t e = graph.first[v]; e < graph.first[v + 1]; ++e) {
      Counted& counted = counts[graph.to[e]];
      ++(graph.slot[e] < kSlotNative ? counted.python : counted.native);
    }
  }
  std::vector<NodeId> held;
  for (NodeId v = 0; v < graph.size(); ++v) {
    if (reach.Reached(v) || census.origin[v] != Origin::kPython) continue;
    if (HeldByMore(census, v, counts[v])) held.push_back(v);
  }
  return held;
}

constexpr uint32_t kLast = 256;  // steps that a path from a root without a name counts more

void BuildCensus(Census* census, bool scoped) {
  const auto start = std::chrono::steady_clock::now();
  if (!Reader().Refresh()) g_layout = TorchLayout();
  Builder builder(census, scoped);
  builder.Run();
  census->build_seconds = Seconds(start);

  const auto then = std::chrono::steady_clock::now();
  heap::ObjectGraph& graph = census->graph;
  census->reach = std::make_unique<heap::Reach>(graph);
  heap::Reach& reach = *census->reach;
  for (const heap::Root& root : graph.roots) reach.AddRoot(root.node);
  const auto also = [&](NodeId node, heap::RootKind kind, uint32_t detail) {
    if (reach.Reached(node)) return;
    // What also a variable holds, in however many steps, is told by the variable.
    const bool nameless = kind == heap::RootKind::kForeign || kind == heap::RootKind::kIsland;
    graph.roots.push_back({node, kind, detail, nameless ? kLast : 4u});
    reach.AddRoot(node);
  };
  for (const auto& word : builder.stack()) also(word.node, heap::RootKind::kStack, word.frame);
  for (NodeId node : builder.weak_targets()) also(node, heap::RootKind::kWeak, 0);
  for (NodeId node : ForeignHeld(*census, reach)) also(node, heap::RootKind::kForeign, 0);
  const auto reached = [&](NodeId node) { return reach.Reached(node); };
  for (NodeId node : heap::IslandEntries(graph, reached)) also(node, heap::RootKind::kIsland, 0);
  census->dominator_seconds = Seconds(then);
}

void FindDominators(Census* census) {
  if (!census->reach) return;
  const auto start = std::chrono::steady_clock::now();
  census->tree = census->reach->Dominators();
  census->reach.reset();
  census->dominator_seconds += Seconds(start);
}

}  // namespace lowtide::walk
