#include "python/walk_alive.h"

#include <algorithm>

namespace lowtide::walk {
namespace {

size_t FilterSlot(uint64_t address) { return address >> 4 & 0xffff; }

}  // namespace

void Alive::Want(const std::vector<NodeId>& path) {
  for (NodeId node : path) {
    if (const NodeId up = paths_.parent[node]; up != heap::kNone) {
      auto& siblings = holding_[up].children;
      if (std::find(siblings.begin(), siblings.end(), node) != siblings.end()) continue;
      siblings.push_back(node);
      holding_[up].now[SlotOf(node)] = nullptr;
    }
    wanted_.push_back(node);
    if (census_.origin[node] == Origin::kPython) by_address_[census_.address[node]] = node;
    filter_[FilterSlot(census_.address[node])] = true;
  }
}

void Alive::WantObject(NodeId node) {
  by_address_.try_emplace(census_.address[node], node);
  filter_[FilterSlot(census_.address[node])] = true;
}

void Alive::WantType(uint32_t number) {
  const uint64_t type = reinterpret_cast<uint64_t>(TypeOfNumber(number));
  types_.insert(type);
  filter_[FilterSlot(type)] = true;
}

void Alive::Look() {
  LtVisitGcObjects([](PyObject* object, void* self) { static_cast<Alive*>(self)->Seen(object); }, this);
  LookAtFrames();
  for (NodeId node : wanted_) Confirm(node);
}

void Alive::Seen(PyObject* object) {
  const uint64_t address = reinterpret_cast<uint64_t>(object);
  if (!filter_[FilterSlot(address)]) return;
  const auto node = by_address_.find(address);
  if (node != by_address_.end() && TypeNumber(Py_TYPE(object)) == census_.type[node->second]) there_.insert(node->second);
  if (types_.count(address) && PyType_Check(object)) types_there_.insert(address);
}

// Frames are no objects: those of the census that still run are there, and hold what is in their variables now.
void Alive::LookAtFrames() {
  LtVisitFrames([](const LtFrame* frame, void* self) { static_cast<Alive*>(self)->LookAtFrame(*frame); }, this);
}

void Alive::LookAtFrame(const LtFrame& frame) {
  const uint64_t address = reinterpret_cast<uint64_t>(frame.address);
  for (uint32_t i = 0; i < census_.frames.size(); ++i) {
    const FrameInfo& known = census_.frames[i];
    if (known.address == address && known.code == frame.code && known.object == frame.object) frames_.insert(i);
  }
  for (auto& [parent, holding] : holding_) {
    if (census_.origin[parent] != Origin::kFrame || census_.address[parent] != address) continue;
    uint32_t slot = 0;
    for (int i = 0; i < frame.slot_count; ++i) Held(parent, &holding, slot++, frame.slots[i]);
    if (frame.function) Held(parent, &holding, slot++, frame.function);
    if (frame.locals) Held(parent, &holding, slot++, frame.locals);
  }
  for (int i = 0; i < frame.stack_count; ++i) {
    const auto node = by_address_.find(reinterpret_cast<uint64_t>(frame.stack[i]));
    if (node != by_address_.end()) stacked_.insert(node->second);
  }
}

// `child` is an object that lives, in a slot of `parent`'s.
void Alive::Held(NodeId parent, Holding* holding, uint32_t slot, PyObject* child) {
  if (!child) return;
  if (const auto wanted = holding->now.find(slot); wanted != holding->now.end() && !wanted->second) wanted->second = child;
  if (!filter_[FilterSlot(reinterpret_cast<uint64_t>(child))]) return;
  const auto node = by_address_.find(reinterpret_cast<uint64_t>(child));
  if (node == by_address_.end() || paths_.parent[node->second] != parent) return;
  held_.insert(node->second);
  if (TypeNumber(Py_TYPE(child)) == census_.type[node->second]) there_.insert(node->second);
}

// Children that are gone give way to what is in their slots.
void Alive::Settle(Holding* holding) {
  for (NodeId child : holding->children) {
    const auto now = holding->now.find(SlotOf(child));
    if (census_.origin[child] != Origin::kPython || (held_.count(child) && there_.count(child)) || !now->second) continue;
    if (SlotOf(child) >= kSlotNative - 1 || TypeNumber(Py_TYPE(now->second)) != census_.type[child]) continue;
    if (Sibling(child, now->second)) continue;
    census_.address[child] = reinterpret_cast<uint64_t>(now->second);
    held_.insert(child);
    there_.insert(child);
  }
}

// Slots are counted, so that the deletion of one moves those that come after it: what was in another slot at the census is
// no successor.
bool Alive::Sibling(NodeId child, PyObject* object) const {
  const NodeId parent = paths_.parent[child];
  for (uint64_t e = census_.graph.first[parent]; e < census_.graph.first[parent + 1]; ++e) {
    const NodeId other = census_.graph.to[e];
    if (other != child && census_.origin[other] == Origin::kPython && census_.object(other) == object) return true;
  }
  return false;
}

void Alive::Confirm(NodeId node) {
  if (confirmed_.count(node)) return;
  const NodeId up = paths_.parent[node];
  const bool held = up == heap::kNone ? RootHolds(node) : confirmed_.count(up) && (Native(up, node) || held_.count(node));
  const Origin origin = census_.origin[node];
  const bool there = origin != Origin::kPython || there_.count(node);  // frames: their roots say
  if (!held || !there) return;
  confirmed_.insert(node);
  Follow(node);
}

bool Alive::RootHolds(NodeId node) const {
  if (paths_.root[node] == heap::kNone) return false;
  const heap::Root& root = census_.graph.roots[paths_.root[node]];
  if (root.kind == heap::RootKind::kFrame) return frames_.count(root.detail) > 0;
  if (root.kind == heap::RootKind::kStack) return frames_.count(root.detail) && stacked_.count(node);
  return true;  // it is there: that will do
}

// Edges of PyTorch's C++ objects are taken as they were: labels do not read them.
bool Alive::Native(NodeId parent, NodeId child) const {
  return census_.origin[parent] == Origin::kNative || SlotOf(child) >= kSlotNative;
}

// What a node that is there holds now, in the order in which the builder counts slots.
void Alive::Follow(NodeId parent) {
  const auto found = holding_.find(parent);
  if (found == holding_.end()) return;
  Holding& holding = found->second;
  if (census_.origin[parent] == Origin::kPython) {
    PyObject* object = census_.object(parent);
    const TypeInfo& info = table_.Of(Py_TYPE(object));
    struct Context {
      Alive* self;
      NodeId parent;
      Holding* holding;
      uint32_t slot;
    } context{this, parent, &holding, 0};
    const auto look = [](PyObject* child, void* at) {
      Context* to = static_cast<Context*>(at);
      to->self->Held(to->parent, to->holding, to->slot++, child);
      return 0;
    };
    if (census_.graph.kind[parent] == Kind::kNamespace && PyDict_Check(object)) FollowNamespace(parent, &holding);
    else if (IsCollected(object, info)) info.type->tp_traverse(object, look, &context);
    if (info.special == TypeInfo::Special::kArray) {
      if (PyObject* base = ArrayBase(object)) look(base, &context);
      size_t count = 0;
      PyObject** items = ArrayObjects(object, &count);
      for (size_t i = 0; i < count; ++i) {
        if (items[i]) look(items[i], &context);
      }
    }
  }
  Settle(&holding);
}

void Alive::FollowNamespace(NodeId parent, Holding* holding) {
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(census_.object(parent), &at, &name, &value);) {
    Held(parent, holding, NamespaceSlot(name, at), value);
  }
}

size_t Alive::Prefix(const std::vector<NodeId>& path) const {
  size_t count = 0;
  while (count < path.size() && confirmed_.count(path[count])) ++count;
  return count;
}

bool Alive::Type(uint32_t number) const {
  return IsStaticType(number) || types_there_.count(reinterpret_cast<uint64_t>(TypeOfNumber(number)));
}

}  // namespace lowtide::walk
