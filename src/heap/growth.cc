#include "heap/growth.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace lowtide::heap {

int64_t Amount::Bytes() const {
  int64_t sum = host + cpu;
  for (int64_t bytes : device) sum += bytes;
  return sum;
}

Amount& Amount::operator+=(const Amount& other) {
  host += other.host, cpu += other.cpu, shared += other.shared;
  tensors += other.tensors, autograd += other.autograd, objects += other.objects;
  for (size_t i = 0; i < device.size(); ++i) device[i] += other.device[i];
  return *this;
}

Amount& Amount::operator-=(const Amount& other) {
  host -= other.host, cpu -= other.cpu, shared -= other.shared;
  tensors -= other.tensors, autograd -= other.autograd, objects -= other.objects;
  for (size_t i = 0; i < device.size(); ++i) device[i] -= other.device[i];
  return *this;
}

namespace {

bool IsContainer(Kind kind) { return kind == Kind::kSequence || kind == Kind::kMapping; }

// Node of `before` that is each node of `after`, and the reverse.
struct Match {
  Array<NodeId> to_before, to_after;
};

// Dominators come before what they dominate, so that theirs is settled.
bool SameDominator(const Mark& before, NodeId old, const Mark& after, NodeId now, const Match& match) {
  const NodeId up = after.tree->idom[now], old_up = before.tree->idom[old];
  if (up == kNone || old_up == kNone) return false;
  const bool top = up == after.tree->root(), old_top = old_up == before.tree->root();
  if (top || old_top) return top && old_top;
  return match.to_before[up] == old_up;
}

// Of variables and attributes, whose slots stay what they are: two temporaries that change places in memory are not the
// same two.
bool SameVariable(const Mark& before, NodeId old, const Mark& after, NodeId now) {
  const NodeId up = after.paths->parent[now];
  if (up == kNone || before.paths->parent[old] == kNone) return true;
  const Kind kind = after.graph->kind[up];
  if (kind != Kind::kNamespace && kind != Kind::kObject) return true;
  if ((*after.address)[up] != (*before.address)[before.paths->parent[old]]) return true;  // held in more than one way
  return after.graph->slot[after.paths->edge[now]] == before.graph->slot[before.paths->edge[old]];
}

Match MatchNodes(const Mark& before, const Mark& after) {
  Match match{Array<NodeId>(after.graph->size(), kNone),
              Array<NodeId>(before.graph->size(), kNone)};
  for (NodeId v : after.tree->order) {
    const NodeId old = before.map->Find((*after.address)[v]);
    if (old == kNone || (*before.address)[old] != (*after.address)[v]) continue;
    if ((*before.type)[old] != (*after.type)[v] || !SameDominator(before, old, after, v, match)) continue;
    if (!SameVariable(before, old, after, v)) continue;
    match.to_before[v] = old;
    match.to_after[old] = v;
  }
  return match;
}

// Where something entered: a slot of a persistent node, or (for containers) the node.
constexpr uint32_t kWhole = 0xffffffffu;  // the node itself, or all slots of a container

struct Place {
  NodeId holder = kNone;
  uint32_t slot = 0;
};

uint64_t KeyOf(const Place& place) { return static_cast<uint64_t>(place.holder) << 32 | place.slot; }

struct Slot {
  int64_t bytes = 0, members = 0;
  NodeId sample = kNone;
  uint64_t sample_bytes = 0;
};

struct Ledger {
  std::unordered_map<uint64_t, Slot> slots;                // by place
  std::vector<std::pair<NodeId, uint64_t>> entered, left;  // node, place
};

// The nearest ancestor on the shortest path that is in both marks, and the slot of it through which the path
// goes.
Place PlaceOf(const Mark& mark, const Array<NodeId>& partner, NodeId node) {
  NodeId at = node;
  while (true) {
    const NodeId up = mark.paths->parent[at];
    if (up == kNone) {
      const uint32_t root = mark.paths->root[at];
      return {kNone, root == kNone ? 0 : static_cast<uint32_t>(mark.graph->roots[root].kind)};
    }
    if (partner[up] != kNone) return {up, mark.graph->slot[mark.paths->edge[at]]};
    at = up;
  }
}

// A node that is new while its dominator is not (or is the roots): the top of what entered.
bool IsTop(const Mark& mark, const Array<NodeId>& partner, NodeId node) {
  if (partner[node] != kNone) return false;
  const NodeId up = mark.tree->idom[node];
  return up != kNone && (up == mark.tree->root() || partner[up] != kNone);
}

// What is new, and what persistent nodes swelled by.
void BookEntered(const Mark& before, const Mark& after, const Match& match, Ledger* ledger) {
  for (NodeId v : after.tree->order) {
    if (match.to_before[v] != kNone) {
      const int64_t swelled = static_cast<int64_t>(after.graph->bytes[v]) -
                              static_cast<int64_t>(before.graph->bytes[match.to_before[v]]);
      if (swelled != 0) ledger->slots[KeyOf({v, kWhole})].bytes += swelled;
      continue;
    }
    if (!IsTop(after, match.to_before, v)) continue;
    const uint64_t key = KeyOf(PlaceOf(after, match.to_before, v));
    ledger->entered.emplace_back(v, key);
    Slot& slot = ledger->slots[key];
    slot.bytes += static_cast<int64_t>(after.tree->retained[v]);
    ++slot.members;
    if (slot.sample != kNone && after.tree->retained[v] < slot.sample_bytes) continue;
    slot.sample = v;
    slot.sample_bytes = after.tree->retained[v];
  }
}

void BookLeft(const Mark& before, const Match& match, Ledger* ledger) {
  for (NodeId v : before.tree->order) {
    if (!IsTop(before, match.to_after, v)) continue;
    Place place = PlaceOf(before, match.to_after, v);
    if (place.holder != kNone) place.holder = match.to_after[place.holder];
    const uint64_t key = KeyOf(place);
    ledger->left.emplace_back(v, key);
    Slot& slot = ledger->slots[key];
    slot.bytes -= static_cast<int64_t>(before.tree->retained[v]);
    --slot.members;
  }
}

// Slots of one container (or one kind of root) become one place.
uint64_t JoinedKey(const ObjectGraph& graph, uint64_t key) {
  const NodeId holder = static_cast<NodeId>(key >> 32);
  return holder != kNone && IsContainer(graph.kind[holder]) ? KeyOf({holder, kWhole}) : key;
}

}  // namespace

std::vector<Growth> CompareMarks(const Mark& before, const Mark& after, int64_t least_bytes) {
  const Match match = MatchNodes(before, after);
  Ledger ledger;
  BookEntered(before, after, match, &ledger);
  BookLeft(before, match, &ledger);

  std::unordered_map<uint64_t, Growth> places;
  std::unordered_map<uint64_t, uint64_t> largest;
  for (const auto& [key, slot] : ledger.slots) {
    const uint64_t joined = JoinedKey(*after.graph, key);
    Growth& sum = places[joined];
    sum.holder = static_cast<NodeId>(key >> 32);
    sum.bytes += slot.bytes;
    sum.members += slot.members;
    if (slot.bytes > 0 && static_cast<uint32_t>(key) != kWhole) ++sum.slots;
    if (slot.sample == kNone || slot.sample_bytes < largest[joined]) continue;
    sum.sample = slot.sample;
    largest[joined] = slot.sample_bytes;
  }
  std::erase_if(places, [&](const auto& entry) { return entry.second.bytes < least_bytes; });
  for (const auto& [node, key] : ledger.entered) {
    const auto found = places.find(JoinedKey(*after.graph, key));
    if (found != places.end()) found->second.entered.push_back(node);
  }
  for (const auto& [node, key] : ledger.left) {
    const auto found = places.find(JoinedKey(*after.graph, key));
    if (found != places.end()) found->second.left.push_back(node);
  }
  std::vector<Growth> all;
  for (auto& [key, growth] : places) all.push_back(std::move(growth));
  std::sort(all.begin(), all.end(), [](const Growth& a, const Growth& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.holder < b.holder;
  });
  return all;
}

std::vector<Amount> Amounts(const Mark& mark, const std::vector<NodeId>& nodes) {
  std::vector<Amount> amounts(nodes.size());
  Array<uint32_t> owner(mark.graph->size(), kNone);
  Array<uint32_t> named(mark.graph->size(), kNone);
  for (uint32_t i = 0; i < nodes.size(); ++i) named[nodes[i]] = i;
  // An order in which dominators come first: the depth-first preorder is one.
  for (NodeId v : mark.tree->order) {
    const NodeId up = mark.tree->idom[v];
    owner[v] = named[v] != kNone ? named[v] : up == mark.tree->root() ? kNone : owner[up];
    if (owner[v] == kNone) continue;
    Amount& amount = amounts[owner[v]];
    const int64_t bytes = static_cast<int64_t>(mark.graph->bytes[v]);
    const Kind kind = mark.graph->kind[v];
    const int16_t device = kind == Kind::kStorage ? (*mark.device)[v] : int16_t{-1};
    if (kind != Kind::kStorage)
      amount.host += bytes;
    else if (device < 0)
      amount.cpu += bytes;
    else
      amount.device[static_cast<size_t>(device) % amount.device.size()] += bytes;
    amount.tensors += kind == Kind::kTensor;
    amount.autograd += kind == Kind::kAutograd;
    if (device == -2) amount.shared += bytes;
    ++amount.objects;
  }
  return amounts;
}

}  // namespace lowtide::heap
