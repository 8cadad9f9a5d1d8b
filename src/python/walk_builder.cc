#include "python/walk_builder.h"

#include <algorithm>
#include <cstring>

namespace lowtide::walk {
namespace {

using Special = TypeInfo::Special;
constexpr NodeId kAhead = 12;
constexpr uint64_t kLargeLeaf = 512;  // a leaf with several owners is a node of its own from this size on

std::string Text(PyObject* text) {
  const char* bytes = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
  if (text && !bytes) PyErr_Clear();
  return bytes ? bytes : "";
}

bool IsLibrary(PyObject* module) {
  const std::string path = Text(PyDict_GetItemString(PyModule_GetDict(module), "__file__"));
  return path.empty() || path.find("site-packages") != path.npos || path.find("dist-packages") != path.npos ||
         path.find("/lib/python3") != path.npos;
}

}  // namespace

void Builder::Run() {
  if (!scoped_)
    LtVisitGcObjects([](PyObject* o, void* self) { static_cast<Builder*>(self)->Adopt(o); }, this);
  c_.gc_objects = c_.address.size();
  Reserve(c_.gc_objects + c_.gc_objects / 4 + 4096);
  AddRoots();
  for (NodeId node = 0; node < c_.address.size(); ++node) {
    if (node + kAhead < c_.address.size()) Fetch(c_.address[node + kAhead]);
    Expand(node);
  }
}

// The object's head, before it is its turn: most of a walk is waiting for memory.
void Builder::Fetch(uint64_t address) {
  __builtin_prefetch(reinterpret_cast<const void*>(address));
  __builtin_prefetch(reinterpret_cast<const void*>(address + 48));
}

// Room for so many nodes, so that arrays do not double beyond what is needed: most are found by now.
void Builder::Reserve(size_t nodes) {
  c_.address.reserve(nodes);
  c_.type.reserve(nodes);
  c_.origin.reserve(nodes);
  c_.device.reserve(nodes);
  c_.graph.kind.reserve(nodes);
  c_.graph.bytes.reserve(nodes);
  c_.graph.first.reserve(nodes + 1);
  // Address space only, where it is not needed: more edges would mean copying all.
  c_.graph.to.reserve(4 * nodes);
  c_.graph.slot.reserve(4 * nodes);
}

// ---- nodes

NodeId Builder::NewNode(uint64_t address, uint32_t type, Kind kind, Origin origin) {
  const NodeId node = static_cast<NodeId>(c_.address.size());
  c_.address.push_back(address);
  c_.type.push_back(type);
  c_.origin.push_back(origin);
  c_.device.push_back(kHost);
  c_.graph.kind.push_back(kind);
  c_.graph.bytes.push_back(0);
  return node;
}

NodeId Builder::Adopt(PyObject* object, const TypeInfo& info) {
  const uint64_t address = reinterpret_cast<uint64_t>(object);
  const NodeId next = static_cast<NodeId>(c_.address.size());
  const NodeId node = c_.map.Insert(address, next);
  if (node != next) return node;
  NewNode(address, info.number, info.kind, Origin::kPython);
  const uint64_t native = NativeOf(object, info.special);
  if (native) c_.map.Insert(native, node);
  return node;
}

// ---- roots

void Builder::AddRoots() {
  LtVisitFrames([](const LtFrame* f, void* self) { static_cast<Builder*>(self)->AddFrame(*f); }, this);
  std::vector<heap::Root> frames;
  frames.swap(c_.graph.roots);
  // The outermost frame first: its names are the ones its author knows.
  std::stable_sort(frames.begin(), frames.end(), [this](const heap::Root& a, const heap::Root& b) {
    return c_.frames[a.detail].depth > c_.frames[b.detail].depth;
  });
  uint32_t inner = 0;
  for (heap::Root& frame : frames) {
    frame.late = std::min<uint32_t>(8, 2 * inner);
    inner += LtSlotCount(c_.frames[frame.detail].code) > 0;
  }
  PyObject* modules = PyImport_GetModuleDict();
  AddModules(modules, frames);
  if (scoped_) return;
  LtVisitThreadObjects(
      [](PyObject* o, void* self) {
        Builder* b = static_cast<Builder*>(self);
        const TypeInfo& info = b->types_.Of(Py_TYPE(o));
        if (IsCollected(o, info))
          b->c_.graph.roots.push_back({b->Adopt(o, info), heap::RootKind::kThread, 0, 6});
      },
      this);
  c_.graph.roots.push_back({Adopt(modules), heap::RootKind::kThread, 0, 6});
}

// The script's own globals, other modules of the user's, running functions, and last the libraries.
void Builder::AddModules(PyObject* modules, const std::vector<heap::Root>& frames) {
  PyObject* main = PyDict_GetItemString(modules, "__main__");
  if (main && PyModule_Check(main)) AddModule("__main__", main, 0);
  std::vector<std::pair<const char*, PyObject*>> others[2];
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(modules, &at, &key, &value);) {
    const char* name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : nullptr;
    if (!name) PyErr_Clear();
    if (!name || !PyModule_Check(value) || value == main) continue;
    others[IsLibrary(value)].emplace_back(name, value);
  }
  for (const auto& [name, module] : others[0]) AddModule(name, module, 0);
  c_.graph.roots.insert(c_.graph.roots.end(), frames.begin(), frames.end());
  if (scoped_) return;
  for (const auto& [name, module] : others[1]) AddModule(name, module, 2);
}

void Builder::AddModule(const char* name, PyObject* module, uint32_t late) {
  const NodeId node = Adopt(PyModule_GetDict(module));
  c_.graph.kind[node] = Kind::kNamespace;
  c_.graph.roots.push_back({node, heap::RootKind::kModule, static_cast<uint32_t>(c_.modules.size()), late});
  c_.modules.emplace_back(name);
}

void Builder::AddFrame(const LtFrame& frame) {
  if (Text(frame.code->co_filename).find("/lowtide/_") != std::string::npos) return;  // ourselves
  const uint32_t index = static_cast<uint32_t>(c_.frames.size());
  const uint64_t address = reinterpret_cast<uint64_t>(frame.address);
  c_.frames.push_back({frame.code, frame.thread->thread_id, frame.depth, frame.line, address, frame.object});
  const NodeId node = NewNode(address, TypeNumber(frame.code), Kind::kNamespace, Origin::kFrame);
  c_.map.Insert(address, node);
  Pending pending;
  pending.node = node;
  pending.slots.assign(frame.slots, frame.slots + frame.slot_count);
  if (frame.function) pending.others.push_back(frame.function);
  if (frame.locals) pending.others.push_back(frame.locals);
  pending_frames_.push_back(std::move(pending));
  frame_of_node_[node] = index;
  c_.graph.roots.push_back({node, heap::RootKind::kFrame, index, 0});
  for (int i = 0; i < frame.stack_count; ++i) {
    // Stale words are possible: only what the collector tracks counts, and only if nothing else reaches it.
    const NodeId known = c_.map.Find(reinterpret_cast<uint64_t>(frame.stack[i]));
    if (known != heap::kNone && c_.origin[known] == Origin::kPython) stack_.push_back({known, index});
  }
}

// ---- edges

void Builder::Expand(NodeId node) {
  current_ = node;
  ordinal_ = 0;
  switch (c_.origin[node]) {
    case Origin::kFrame:
      ExpandFrame(node);
      break;
    case Origin::kNative:
      ExpandNative(node, c_.address[node]);
      break;
    case Origin::kPython:
      ExpandObject(node);
      break;
  }
  c_.graph.first.push_back(c_.graph.to.size());
}

void Builder::AddEdge(NodeId to, uint16_t slot) {
  if (to == current_) return;
  c_.graph.to.push_back(to);
  c_.graph.slot.push_back(slot);
}

void Builder::ExpandFrame(NodeId node) {
  std::fill(std::begin(weak_), std::end(weak_), nullptr);
  const Pending& pending = pending_frames_[frame_of_node_[node]];
  for (PyObject* held : pending.slots) {
    if (held)
      VisitChild(held);
    else
      ++ordinal_;
  }
  for (PyObject* held : pending.others) VisitChild(held);
}

int Builder::VisitTrampoline(PyObject* child, void* self) {
  static_cast<Builder*>(self)->VisitChild(child);
  return 0;
}

void Builder::VisitChild(PyObject* child) {
  const uint16_t slot = static_cast<uint16_t>(std::min<uint32_t>(ordinal_++, kSlotNative - 1));
  const NodeId known = c_.map.Find(reinterpret_cast<uint64_t>(child));
  if (known != heap::kNone) {
    if (IsWeak(child))
      NoteWeak(known);
    else
      AddEdge(known, slot);
    return;
  }
  const TypeInfo& info = types_.Of(Py_TYPE(child));
  const bool whole = info.special == Special::kArray || info.special == Special::kTensor ||
                     info.special == Special::kStorage || IsCollected(child, info);
  if (whole) {
    if (!IsWeak(child)) AddEdge(Adopt(child, info), slot);
    return;
  }
  if (info.gc) return;  // a static type: immortal, and its traverse would abort
  const auto count = Py_REFCNT(child);
  if (count != 1 && info.special == Special::kLong) return;
  const uint64_t bytes = OwnBytes(child, info);
  if (count == 1)
    c_.graph.bytes[current_] += bytes;
  else if (bytes >= kLargeLeaf)
    AddEdge(Adopt(child, info), slot);
}

// Edges that keep their target alive but say nothing about who holds it: an instance its class, a function
// the globals of its module, a class its bases, a module object the dict that is a root itself.
bool Builder::IsWeak(PyObject* child) const {
  return child == weak_[0] || child == weak_[1] || child == weak_[2] || child == weak_[3];
}

void Builder::NoteWeak(NodeId node) {
  if (weak_seen_.size() <= node) weak_seen_.resize(node + 4096, false);
  if (weak_seen_[node]) return;
  weak_seen_[node] = true;
  weak_targets_.push_back(node);
}

void Builder::SetWeak(PyObject* object, const TypeInfo& info) {
  weak_[0] = reinterpret_cast<PyObject*>(info.type);
  weak_[1] = weak_[2] = weak_[3] = nullptr;
  switch (info.special) {
    case Special::kFunction:
      weak_[1] = reinterpret_cast<PyFunctionObject*>(object)->func_globals;
      weak_[2] = reinterpret_cast<PyFunctionObject*>(object)->func_builtins;
      break;
    case Special::kType:
      weak_[1] = reinterpret_cast<PyTypeObject*>(object)->tp_mro;
      weak_[2] = reinterpret_cast<PyObject*>(reinterpret_cast<PyTypeObject*>(object)->tp_base);
      weak_[3] = reinterpret_cast<PyTypeObject*>(object)->tp_bases;
      break;
    case Special::kFrame:
      SetWeakOfFrame(object);
      break;
    case Special::kModule:
      weak_[1] = PyModule_GetDict(object);
      break;
    default:
      break;
  }
}

void Builder::SetWeakOfFrame(PyObject* object) {
  LtFrameWeak(reinterpret_cast<PyFrameObject*>(object), weak_ + 1);
}

void Builder::ExpandObject(NodeId node) {
  PyObject* object = c_.object(node);
  const TypeInfo& info = types_.Of(Py_TYPE(object));
  c_.graph.bytes[node] += OwnBytes(object, info);
  if (info.gc) {
    SetWeak(object, info);
    if (info.special == Special::kDict && c_.graph.kind[node] == Kind::kNamespace)
      ExpandNamespace(object);
    else
      info.type->tp_traverse(object, VisitTrampoline, this);
  }
  switch (info.special) {
    case Special::kArray:
      ExpandArray(object);
      break;
    case Special::kContext:
      ExpandContext(object);
      break;
    case Special::kTensor:
    case Special::kStorage:
    case Special::kGraphNode:
      if (const uint64_t native = NativeOf(object, info.special)) ExpandNative(node, native);
      break;
    default:
      break;
  }
}

void Builder::ExpandNamespace(PyObject* dict) {
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &name, &value);) {
    ordinal_ = NamespaceSlot(name, at);
    VisitChild(value);
  }
}

void Builder::ExpandArray(PyObject* object) {
  if (PyObject* base = ArrayBase(object)) VisitChild(base);
  size_t count = 0;
  PyObject** items = ArrayObjects(object, &count);
  for (size_t i = 0; i < count; ++i) {
    if (items[i]) VisitChild(items[i]);
  }
}

}  // namespace lowtide::walk
