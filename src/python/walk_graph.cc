#include "python/walk_graph.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <unordered_map>

#include "python/walk_types.h"

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

const void* TypeOfNumber(uint32_t number) { return number < Numbered().size() ? Numbered()[number] : nullptr; }

uint64_t Census::MemoryBytes() const {
  return graph.first.capacity() * 8 + graph.to.capacity() * 4 + graph.slot.capacity() * 2 + graph.bytes.capacity() * 8 +
         graph.kind.capacity() + address.capacity() * 8 + type.capacity() * 4 + origin.capacity() +
         device.capacity() * 2 + tree.idom.capacity() * 4 + tree.retained.capacity() * 8 + tree.order.capacity() * 4 +
         map.bytes();
}

namespace {

using Special = TypeInfo::Special;
constexpr uint64_t kLargeLeaf = 512;  // a leaf with several owners is a node of its own from this size on

uint64_t WordAt(const void* base, size_t offset) {
  uint64_t word = 0;
  std::memcpy(&word, static_cast<const char*>(base) + offset, sizeof word);
  return word;
}

// The C++ object that a Python object of PyTorch's stands for.
uint64_t NativeOf(PyObject* object, Special special) {
  switch (special) {
    case Special::kTensor: return g_layout.tensor_impl ? WordAt(object, g_layout.tensor_impl) : 0;
    case Special::kStorage: return g_layout.storage_impl ? WordAt(object, g_layout.storage_impl) : 0;
    case Special::kGraphNode: return g_layout.graph_node ? WordAt(object, g_layout.graph_node) : 0;
    default: return 0;
  }
}

class Builder {
 public:
  Builder(Census* census, PyObject* skip) : c_(*census), skip_(skip) {}

  void Run() {
    LtVisitGcObjects([](PyObject* o, void* self) { static_cast<Builder*>(self)->Adopt(o); }, this);
    c_.gc_objects = c_.address.size();
    AddRoots();
    for (NodeId node = 0; node < c_.address.size(); ++node) Expand(node);
  }

 private:
  // ---- nodes

  NodeId NewNode(uint64_t address, uint32_t type, Kind kind, Origin origin) {
    const NodeId node = static_cast<NodeId>(c_.address.size());
    c_.address.push_back(address);
    c_.type.push_back(type);
    c_.origin.push_back(origin);
    c_.device.push_back(-1);
    c_.graph.kind.push_back(kind);
    c_.graph.bytes.push_back(0);
    return node;
  }

  NodeId Adopt(PyObject* object) {
    const TypeInfo& info = types_.Of(Py_TYPE(object));
    return Adopt(object, info);
  }

  NodeId Adopt(PyObject* object, const TypeInfo& info) {
    const uint64_t address = reinterpret_cast<uint64_t>(object);
    const NodeId next = static_cast<NodeId>(c_.address.size());
    const NodeId node = c_.map.Insert(address, next);
    if (node != next) return node;
    NewNode(address, info.number, info.kind, Origin::kPython);
    const uint64_t native = NativeOf(object, info.special);
    if (native) c_.map.Insert(native, node);
    return node;
  }

  NodeId AdoptNative(uint64_t address, uint64_t vtable, Kind kind, NodeId from) {
    const NodeId next = static_cast<NodeId>(c_.address.size());
    const NodeId node = c_.map.Insert(address, next);
    if (node != next) return node;
    NewNode(address, TypeNumber(reinterpret_cast<const void*>(vtable)), kind, Origin::kNative);
    // The struct of a storage is host memory, its contents may be elsewhere: book the struct with who found it.
    if (kind == Kind::kStorage) c_.graph.bytes[from] += Reader().BlockBytes(address);
    return node;
  }

  // ---- roots

  void AddRoots() {
    PyObject* modules = PyImport_GetModuleDict();
    PyObject* main = PyDict_GetItemString(modules, "__main__");
    LtVisitFrames([](const LtFrame* f, void* self) { static_cast<Builder*>(self)->AddFrame(*f); }, this);
    std::vector<heap::Root> frames;
    frames.swap(c_.graph.roots);
    // The outermost frame first: its names are the ones its author knows.
    std::stable_sort(frames.begin(), frames.end(), [this](const heap::Root& a, const heap::Root& b) {
      return c_.frames[a.detail].depth > c_.frames[b.detail].depth;
    });
    if (main) AddModule("__main__", main, 0);
    std::vector<std::pair<const char*, PyObject*>> others[2];
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(modules, &at, &key, &value);) {
      const char* name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : nullptr;
      if (!name) PyErr_Clear();
      if (!name || !PyModule_Check(value) || value == main || std::strncmp(name, "lowtide", 7) == 0) continue;
      others[IsLibrary(value)].emplace_back(name, value);
    }
    for (const auto& [name, module] : others[0]) AddModule(name, module, 0);
    uint32_t inner = 0;
    for (heap::Root& frame : frames) {
      frame.late = std::min<uint32_t>(8, 2 * inner);
      inner += LtSlotCount(c_.frames[frame.detail].code) > 0;
      c_.graph.roots.push_back(frame);
    }
    for (const auto& [name, module] : others[1]) AddModule(name, module, 2);
    LtVisitThreadObjects(
        [](PyObject* o, void* self) {
          Builder* b = static_cast<Builder*>(self);
          const TypeInfo& info = b->types_.Of(Py_TYPE(o));
          if (IsCollected(o, info)) b->c_.graph.roots.push_back({b->Adopt(o, info), heap::RootKind::kThread, 0, 6});
        },
        this);
    const NodeId all = Adopt(modules);
    c_.graph.roots.push_back({all, heap::RootKind::kThread, 0, 6});
  }

  static bool IsLibrary(PyObject* module) {
    PyObject* file = PyDict_GetItemString(PyModule_GetDict(module), "__file__");
    const char* path = file && PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : nullptr;
    if (!path) PyErr_Clear();
    return !path || std::strstr(path, "site-packages") || std::strstr(path, "dist-packages") ||
           std::strstr(path, "/lib/python3");
  }

  void AddModule(const char* name, PyObject* module, uint32_t late) {
    PyObject* dict = PyModule_GetDict(module);
    const NodeId node = Adopt(dict);
    c_.graph.kind[node] = Kind::kNamespace;
    c_.graph.roots.push_back({node, heap::RootKind::kModule, static_cast<uint32_t>(c_.modules.size()), late});
    c_.modules.emplace_back(name);
  }

  void AddFrame(const LtFrame& frame) {
    const char* file = PyUnicode_AsUTF8(frame.code->co_filename);
    if (!file) PyErr_Clear();
    if (file && std::strstr(file, "/lowtide/_")) return;  // ourselves
    const uint32_t index = static_cast<uint32_t>(c_.frames.size());
    c_.frames.push_back({frame.code, frame.thread->thread_id, frame.depth, frame.line});
    const NodeId node = NewNode(reinterpret_cast<uint64_t>(frame.address), TypeNumber(frame.code), Kind::kNamespace,
                                Origin::kFrame);
    c_.map.Insert(reinterpret_cast<uint64_t>(frame.address), node);
    pending_frames_.resize(index + 1);
    Pending& pending = pending_frames_[index];
    pending.node = node;
    pending.slots.assign(frame.slots, frame.slots + frame.slot_count);
    if (frame.function) pending.others.push_back(frame.function);
    if (frame.locals) pending.others.push_back(frame.locals);
    for (int i = 0; i < frame.stack_count; ++i) {
      // Stale words are possible: only what the collector tracks counts, and only if nothing else reaches it.
      const NodeId known = c_.map.Find(reinterpret_cast<uint64_t>(frame.stack[i]));
      if (known != kNoNode && c_.origin[known] == Origin::kPython) stack_.push_back({known, index});
    }
    frame_of_node_[node] = index;
    c_.graph.roots.push_back({node, heap::RootKind::kFrame, index});
  }

  // ---- edges

  void Expand(NodeId node) {
    current_ = node;
    ordinal_ = 0;
    switch (c_.origin[node]) {
      case Origin::kFrame: ExpandFrame(node); break;
      case Origin::kNative: ExpandNative(node, c_.address[node]); break;
      case Origin::kPython: ExpandObject(node); break;
    }
    c_.graph.first.push_back(c_.graph.to.size());
  }

  void AddEdge(NodeId to, uint16_t slot) {
    if (to == current_) return;
    c_.graph.to.push_back(to);
    c_.graph.slot.push_back(slot);
  }

  void ExpandFrame(NodeId node) {
    const Pending& pending = pending_frames_[frame_of_node_[node]];
    for (PyObject* held : pending.slots) {
      if (held) VisitChild(held);
      else ++ordinal_;
    }
    for (PyObject* held : pending.others) VisitChild(held);
  }

  static int VisitTrampoline(PyObject* child, void* self) {
    static_cast<Builder*>(self)->VisitChild(child);
    return 0;
  }

  void VisitChild(PyObject* child) {
    const uint32_t slot = std::min<uint32_t>(ordinal_++, kSlotNative - 1);
    const NodeId known = c_.map.Find(reinterpret_cast<uint64_t>(child));
    if (known != kNoNode) {
      if (!IsWeak(child, known)) AddEdge(known, static_cast<uint16_t>(slot));
      return;
    }
    const TypeInfo& info = types_.Of(Py_TYPE(child));
    const bool whole = IsCollected(child, info) || info.special == Special::kArray ||
                       info.special == Special::kTensor || info.special == Special::kStorage;
    if (whole) {
      if (IsWeakObject(child)) return;
      AddEdge(Adopt(child, info), static_cast<uint16_t>(slot));
      return;
    }
    if (info.gc) return;  // a static type: immortal, and its traverse would abort
    const uint64_t bytes = OwnBytes(child, info);
    if (Py_REFCNT(child) == 1) {
      c_.graph.bytes[current_] += bytes;
    } else if (bytes >= kLargeLeaf) {
      AddEdge(Adopt(child, info), static_cast<uint16_t>(slot));
    }
  }

  // Edges that keep their target alive but say nothing about who holds it: an instance its class, a function the
  // globals of its module, a class its bases.
  bool IsWeakObject(PyObject* child) const {
    return std::find(std::begin(weak_), std::end(weak_), child) != std::end(weak_);
  }
  bool IsWeak(PyObject* child, NodeId known) {
    if (child == skip_) return true;
    if (!IsWeakObject(child)) return false;
    if (weak_seen_.size() < c_.address.size()) weak_seen_.resize(c_.address.size() + 1024, false);
    if (!weak_seen_[known]) {
      weak_seen_[known] = true;
      weak_targets_.push_back(known);
    }
    return true;
  }

  void SetWeak(PyObject* object, const TypeInfo& info) {
    weak_[0] = reinterpret_cast<PyObject*>(Py_TYPE(object));
    weak_[1] = weak_[2] = weak_[3] = nullptr;
    if (info.special == Special::kFunction) {
      weak_[1] = ((PyFunctionObject*)object)->func_globals;
      weak_[2] = ((PyFunctionObject*)object)->func_builtins;
    } else if (info.special == Special::kType) {
      PyTypeObject* type = reinterpret_cast<PyTypeObject*>(object);
      weak_[1] = type->tp_mro;
      weak_[2] = reinterpret_cast<PyObject*>(type->tp_base);
      weak_[3] = type->tp_bases;
    } else if (info.special == Special::kFrame) {
      SetWeakOfFrame(object);
    }
  }

  void SetWeakOfFrame(PyObject* object) {
#if PY_VERSION_HEX >= 0x030B0000
    weak_[1] = reinterpret_cast<PyObject*>(PyFrame_GetBack((PyFrameObject*)object));
    Py_XDECREF(weak_[1]);
#else
    weak_[1] = reinterpret_cast<PyObject*>(((PyFrameObject*)object)->f_back);
    weak_[2] = ((PyFrameObject*)object)->f_globals;
    weak_[3] = ((PyFrameObject*)object)->f_builtins;
#endif
  }

  void ExpandObject(NodeId node) {
    PyObject* object = c_.object(node);
    if (object == skip_) return;
    const TypeInfo& info = types_.Of(Py_TYPE(object));
    c_.graph.bytes[node] += OwnBytes(object, info);
    if (info.gc) {
      SetWeak(object, info);
      info.type->tp_traverse(object, VisitTrampoline, this);
    }
    if (info.special == Special::kArray) ExpandArray(object);
    const uint64_t native = NativeOf(object, info.special);
    if (native) ExpandNative(node, native);
    if (info.special == Special::kContext) ScanBody(reinterpret_cast<uint64_t>(object) + sizeof(PyObject),
                                                    static_cast<size_t>(Py_TYPE(object)->tp_basicsize) - sizeof(PyObject),
                                                    Body::kContext);
  }

  void ExpandArray(PyObject* object) {
    if (PyObject* base = ArrayBase(object)) VisitChild(base);
    size_t count = 0;
    PyObject** items = ArrayObjects(object, &count);
    for (size_t i = 0; i < count; ++i) {
      if (items[i]) VisitChild(items[i]);
    }
  }

  // ---- PyTorch's C++ objects

  enum class Body { kTensor, kMeta, kAutograd, kContext, kList, kEdges };

  void ExpandNative(NodeId node, uint64_t address) {
    const Kind kind = c_.graph.kind[node];
    if (kind == Kind::kStorage) {
      if (!g_layout.storage_bytes) return;
      c_.graph.bytes[node] += WordAt(reinterpret_cast<void*>(address), g_layout.storage_bytes);
      int8_t device[2];  // DataPtr ends in {device type, index}, in front of the byte count
      std::memcpy(device, reinterpret_cast<char*>(address) + g_layout.storage_bytes - 8, 2);
      c_.device[node] = device[0] == 0 ? int16_t{-1} : std::max<int16_t>(0, device[1]);
      return;
    }
    const size_t bytes = Reader().BlockBytes(address);
    c_.graph.bytes[node] += bytes ? bytes : 192;
    in_accumulate_ = false;
    if (kind == Kind::kAutograd) {
      const uint64_t vtable = WordAt(reinterpret_cast<void*>(address), 0);
      in_accumulate_ = Reader().TypeOf(vtable).accumulate_grad;
    }
    ScanBody(address, bytes ? bytes : 192, kind == Kind::kTensor ? Body::kTensor : Body::kAutograd);
  }

  struct Candidate {
    uint64_t address;
    size_t offset;
  };

  // Looks through the words of a live C++ object for pointers to others, and through the arrays of its vectors.
  void ScanBody(uint64_t address, size_t bytes, Body body, int depth = 0) {
    if (bytes > 1 << 16) bytes = 1 << 16;
    const uint64_t* words = reinterpret_cast<const uint64_t*>(address);
    const size_t count = bytes / 8;
    std::vector<Candidate> found;
    std::vector<uint64_t> unknown, tables;
    struct Vector {
      uint64_t begin, bytes;
      bool edges;
    };
    std::vector<Vector> vectors;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t word = words[i];
      if (!Reader().Plausible(word)) continue;
      const NodeId known = c_.map.Find(word);
      if (known != kNoNode) {
        if (known != current_) TakeKnown(known, i * 8, body);
        continue;
      }
      found.push_back({word, i * 8});
      unknown.push_back(word);
      const bool can_be_vector = depth < 2 && body != Body::kList && body != Body::kEdges && i + 2 < count;
      if (can_be_vector && words[i + 1] > word && words[i + 2] >= words[i + 1] && words[i + 2] - word <= 1 << 20 &&
          (words[i + 1] - word) % 8 == 0) {
        vectors.push_back({word, words[i + 1] - word, body == Body::kAutograd && i * 8 == g_layout.next_edges});
      }
    }
    if (!unknown.empty()) {
      Reader().ReadWords(unknown, &tables);
      for (size_t i = 0; i < found.size(); ++i) {
        if (tables[i]) TakeUnknown(found[i], tables[i], body, depth);
      }
    }
    for (const Vector& vector : vectors) {
      uint64_t probe = 0;
      if (!Reader().Read(vector.begin + vector.bytes - 8, &probe, 8)) continue;
      c_.graph.bytes[current_] += Reader().BlockBytes(vector.begin);
      ScanBody(vector.begin, vector.bytes, vector.edges ? Body::kEdges : Body::kList, depth + 1);
    }
  }

  void TakeKnown(NodeId node, size_t offset, Body body) {
    const Kind kind = c_.graph.kind[node];
    if (kind != Kind::kTensor && kind != Kind::kStorage && kind != Kind::kAutograd) return;
    const bool accumulate = kind == Kind::kAutograd && IsAccumulate(node);
    const bool to_context = kind == Kind::kAutograd && body == Body::kAutograd && c_.origin[node] == Origin::kPython &&
                            !NativeAddress(c_, node);
    if (to_context) AddEdge(node, kSlotOther);  // a custom Function's node owns its ctx
    Take(node, kind, accumulate, offset, body);
  }

  bool IsAccumulate(NodeId node) {
    const uint64_t native = NativeAddress(c_, node);
    return native && Reader().TypeOf(WordAt(reinterpret_cast<void*>(native), 0)).accumulate_grad;
  }

  // Which of the pointers between PyTorch's objects own what they point to.
  void Take(NodeId node, Kind kind, bool accumulate, size_t offset, Body body) {
    if (kind == Kind::kStorage) {
      if (body == Body::kTensor) AddEdge(node, kSlotStorage);
    } else if (kind == Kind::kTensor) {
      switch (body) {
        case Body::kTensor: AddEdge(node, kSlotOther); break;
        case Body::kMeta: AddEdge(node, offset == g_layout.meta_grad ? kSlotGrad : kSlotBase); break;
        case Body::kAutograd: AddEdge(node, in_accumulate_ ? kSlotVariable : kSlotSaved); break;
        default: AddEdge(node, kSlotSaved);
      }
    } else if (kind == Kind::kAutograd) {
      // A saved variable and a leaf point weakly at graph nodes; the inputs of a node and grad_fn are owned.
      if (body == Body::kEdges) AddEdge(node, kSlotNext);
      else if (body == Body::kMeta && !accumulate && offset == g_layout.meta_grad_fn) AddEdge(node, kSlotGradFn);
      else if (body == Body::kContext) AddEdge(node, kSlotGradFn);
    }
  }

  void TakeUnknown(const Candidate& found, uint64_t vtable, Body body, int depth) {
    const NativeType& type = Reader().TypeOf(vtable);
    switch (type.kind) {
      case NativeClass::kTensor: {
        const NodeId node = AdoptNative(found.address, vtable, Kind::kTensor, current_);
        Take(node, Kind::kTensor, false, found.offset, body);
        break;
      }
      case NativeClass::kStorage:
        if (body == Body::kTensor) {
          Take(AdoptNative(found.address, vtable, Kind::kStorage, current_), Kind::kStorage, false, found.offset, body);
        }
        break;
      case NativeClass::kAutograd:
        TakeUnknownNode(found, vtable, type, body);
        break;
      case NativeClass::kMeta:
        if (body == Body::kTensor) {
          const size_t bytes = Reader().BlockBytes(found.address);
          c_.graph.bytes[current_] += bytes;
          ScanBody(found.address, bytes, Body::kMeta, depth + 1);
        }
        break;
      case NativeClass::kPyHolder: TakeHook(found.address); break;
      default: break;
    }
  }

  void TakeUnknownNode(const Candidate& found, uint64_t vtable, const NativeType& type, Body body) {
    const bool owned = body == Body::kEdges || body == Body::kContext ||
                       (body == Body::kMeta && !type.accumulate_grad && found.offset == g_layout.meta_grad_fn);
    if (!owned) return;
    const NodeId node = AdoptNative(found.address, vtable, Kind::kAutograd, current_);
    Take(node, Kind::kAutograd, type.accumulate_grad, found.offset, body);
  }

  // The Python objects of a hook.
  void TakeHook(uint64_t address) {
    const size_t bytes = std::min<size_t>(Reader().BlockBytes(address), 256);
    for (size_t offset = 8; offset + 8 <= bytes; offset += 8) {
      const NodeId node = c_.map.Find(WordAt(reinterpret_cast<void*>(address), offset));
      if (node != kNoNode && node != current_ && c_.origin[node] == Origin::kPython) AddEdge(node, kSlotHook);
    }
  }

 public:
  struct StackWord {
    NodeId node;
    uint32_t frame;
  };
  const std::vector<StackWord>& stack() const { return stack_; }
  const std::vector<NodeId>& weak_targets() const { return weak_targets_; }

 private:
  struct Pending {
    NodeId node = 0;
    std::vector<PyObject*> slots, others;
  };
  static constexpr NodeId kNoNode = heap::kNone;

  Census& c_;
  PyObject* skip_;
  TypeTable types_;
  NodeId current_ = 0;
  uint32_t ordinal_ = 0;
  bool in_accumulate_ = false;
  PyObject* weak_[4] = {};
  std::vector<bool> weak_seen_;
  std::vector<NodeId> weak_targets_;
  std::vector<StackWord> stack_;
  std::vector<Pending> pending_frames_;
  std::unordered_map<NodeId, uint32_t> frame_of_node_;
};

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
  const int64_t uses = static_cast<uint32_t>(WordAt(reinterpret_cast<void*>(native), 8));
  return more > 1 || uses - 1 > static_cast<int64_t>(counted.native);
}

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

uint64_t NativeAddress(const Census& census, NodeId node) {
  if (census.origin[node] == Origin::kNative) return census.address[node];
  if (census.origin[node] != Origin::kPython) return 0;
  PyObject* object = census.object(node);
  switch (census.graph.kind[node]) {
    case Kind::kTensor: return NativeOf(object, Special::kTensor);
    case Kind::kStorage: return NativeOf(object, Special::kStorage);
    case Kind::kAutograd:
      return Py_TYPE(object)->tp_traverse == g_layout.graph_traverse ? NativeOf(object, Special::kGraphNode) : 0;
    default: return 0;
  }
}

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

void BuildCensus(Census* census, PyObject* skip) {
  const auto start = std::chrono::steady_clock::now();
  if (!Reader().Refresh()) g_layout = TorchLayout();
  Builder builder(census, skip);
  builder.Run();
  census->build_seconds = Seconds(start);

  const auto then = std::chrono::steady_clock::now();
  heap::ObjectGraph& graph = census->graph;
  heap::Reach reach(graph);
  for (const heap::Root& root : graph.roots) reach.AddRoot(root.node);
  const auto also = [&](NodeId node, heap::RootKind kind, uint32_t detail) {
    if (reach.Reached(node)) return;
    graph.roots.push_back({node, kind, detail, 4});
    reach.AddRoot(node);
  };
  for (const auto& word : builder.stack()) also(word.node, heap::RootKind::kStack, word.frame);
  for (NodeId node : builder.weak_targets()) also(node, heap::RootKind::kWeak, 0);
  for (NodeId node : ForeignHeld(*census, reach)) also(node, heap::RootKind::kForeign, 0);
  const auto reached = [&](NodeId node) { return reach.Reached(node); };
  for (NodeId node : heap::IslandEntries(graph, reached)) also(node, heap::RootKind::kIsland, 0);
  census->tree = reach.Dominators();
  census->dominator_seconds = Seconds(then);
}

}  // namespace lowtide::walk
