#include "python/walk_label.h"

#include <structmember.h>

#include <cstring>

namespace lowtide::walk {
namespace {

std::string Utf8(PyObject* text) {
  if (!text || !PyUnicode_Check(text)) return {};
  const char* bytes = PyUnicode_AsUTF8(text);
  if (!bytes) PyErr_Clear();
  return bytes ? bytes : "";
}

// repr of a key of a plain type; of any other (whose repr would be the user's code) its type's name.
std::string KeyText(PyObject* key) {
  if (PyUnicode_CheckExact(key) || PyLong_CheckExact(key) || PyFloat_CheckExact(key) ||
      PyBytes_CheckExact(key) || PyBool_Check(key) || key == Py_None) {
    PyObject* repr = PyObject_Repr(key);
    std::string text = Utf8(repr);
    Py_XDECREF(repr);
    if (!repr) PyErr_Clear();
    return text.size() <= 60 ? text : text.substr(0, 57) + "...";
  }
  return std::string("<") + Py_TYPE(key)->tp_name + ">";
}

std::string QualifiedName(PyTypeObject* type) {
  std::string name = type->tp_name;
  if (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) {
    const std::string qualified = Utf8(reinterpret_cast<PyHeapTypeObject*>(type)->ht_qualname);
    PyObject* module = type->tp_dict ? PyDict_GetItemString(type->tp_dict, "__module__") : nullptr;
    const std::string where = Utf8(module);
    name = where.empty() || where == "builtins" ? qualified : where + "." + qualified;
  }
  return name;
}

void FillCode(Label* label, PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030B0000
  label->owner = Utf8(code->co_qualname);
#else
  label->owner = Utf8(code->co_name);
#endif
  label->file = Utf8(code->co_filename);
  label->first_line = code->co_firstlineno;
}

bool IsNativeSlot(uint16_t slot) { return slot >= kSlotNative; }

Label NativeLabel(uint16_t slot) {
  Label label;
  label.op = "via";
  switch (slot) {
    case kSlotStorage:
      label.text = "storage";
      break;
    case kSlotGrad:
      label.op = "attr", label.text = "grad";
      break;
    case kSlotGradFn:
      label.text = "grad_fn";
      break;
    case kSlotBase:
      label.op = "attr", label.text = "_base";
      break;
    case kSlotSaved:
      label.text = "saved";
      break;
    case kSlotNext:
      label.text = "next";
      break;
    case kSlotVariable:
      label.text = "variable";
      break;
    case kSlotHook:
      label.text = "hook";
      break;
    case kSlotContext:
      label.text = "ctx";
      break;
    default:
      label.text = "inner";
      break;
  }
  return label;
}

Label Plain(const char* op, std::string text = {}) {
  Label label;
  label.op = op;
  label.text = std::move(text);
  return label;
}

Label DictLabel(const Census& census, NodeId parent_of_dict, PyObject* dict, PyObject* child,
                bool is_namespace) {
  PyObject* owner = parent_of_dict != heap::kNone && census.origin[parent_of_dict] == Origin::kPython
                        ? census.object(parent_of_dict)
                        : nullptr;
  const bool of_instance = owner && LtInstanceDict(owner) == dict;
  const bool of_class =
      owner && PyType_Check(owner) && reinterpret_cast<PyTypeObject*>(owner)->tp_dict == dict;
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);) {
    if (value != child && key != child) continue;
    if (value != child) return Plain("key");
    if (is_namespace) return Plain("global", Utf8(key));
    if ((of_instance || of_class) && PyUnicode_Check(key)) {
      Label label = Plain("attr", Utf8(key));
      label.owner = QualifiedName(of_class ? reinterpret_cast<PyTypeObject*>(owner) : Py_TYPE(owner));
      return label;
    }
    return Plain("item", KeyText(key));
  }
  return Plain("item", "");
}

// Attributes that a type declares: __slots__, and what C types publish as members.
bool MemberName(PyObject* parent, PyObject* child, std::string* name) {
  for (PyTypeObject* type = Py_TYPE(parent); type; type = type->tp_base) {
    for (PyMemberDef* member = type->tp_members; member && member->name; ++member) {
      if (member->type != 6 && member->type != 16) continue;  // T_OBJECT, T_OBJECT_EX
      PyObject* held = nullptr;
      std::memcpy(&held, reinterpret_cast<char*>(parent) + member->offset, sizeof held);
      if (held != child) continue;
      *name = member->name;
      return true;
    }
  }
  return false;
}

Label FunctionLabel(PyFunctionObject* function, PyObject* child) {
  if (child == function->func_closure) return Plain("hop", "closure");
  if (child == function->func_defaults) return Plain("hop", "defaults");
  if (child == function->func_kwdefaults) return Plain("hop", "kwdefaults");
  if (child == function->func_dict) return Plain("hop", "dict");
  return Plain("hidden", "function");
}

// An item of the tuple that a function keeps its closure or its defaults in.
bool FunctionTupleLabel(PyObject* owner, PyObject* tuple, Py_ssize_t index, Label* label) {
  if (!owner || !PyFunction_Check(owner)) return false;
  PyFunctionObject* function = reinterpret_cast<PyFunctionObject*>(owner);
  PyCodeObject* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  FillCode(label, code);
  label->owner = Utf8(function->func_qualname);
  if (tuple == function->func_closure) {
    const int frees = static_cast<int>(PyTuple_GET_SIZE(tuple));
    label->op = "closure";
    label->text = Utf8(LtSlotName(code, LtSlotCount(code) - frees + static_cast<int>(index)));
    return true;
  }
  if (tuple == function->func_defaults) {
    const Py_ssize_t first = code->co_argcount - PyTuple_GET_SIZE(tuple);
    label->op = "default";
    label->text = Utf8(LtSlotName(code, static_cast<int>(first + index)));
    return true;
  }
  return false;
}

Label TupleLabel(PyObject* owner, PyObject* tuple, PyObject* child) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    if (PyTuple_GET_ITEM(tuple, i) != child) continue;
    Label label;
    if (FunctionTupleLabel(owner, tuple, i, &label)) return label;
    PyObject* fields =
        Py_TYPE(tuple)->tp_dict ? PyDict_GetItemString(Py_TYPE(tuple)->tp_dict, "_fields") : nullptr;
    if (fields && PyTuple_Check(fields) && i < PyTuple_GET_SIZE(fields)) {
      return Plain("attr", Utf8(PyTuple_GET_ITEM(fields, i)));
    }
    return Plain("index", std::to_string(i));
  }
  return Plain("index");
}

Label ExceptionLabel(PyBaseExceptionObject* error, PyObject* child) {
  if (child == error->traceback) return Plain("attr", "__traceback__");
  if (child == error->context) return Plain("attr", "__context__");
  if (child == error->cause) return Plain("attr", "__cause__");
  if (child == error->args) return Plain("attr", "args");
  if (child == error->dict) return Plain("hop", "dict");
  return Plain("hidden", "exception");
}

const char* HiddenName(PyObject* parent) {
  const char* type = Py_TYPE(parent)->tp_name;
  const struct {
    const char *type, *holds;
  } known[] = {
      {"itertools.cycle", "saved"},           {"itertools._tee", "saved"},
      {"itertools._tee_dataobject", "saved"}, {"functools._lru_cache_wrapper", "cache"},
      {"functools._lru_list_elem", "cache"},  {"_thread._local", "thread attributes"},
      {"contextvars.Context", "context"},     {"hamt", "context"},
      {"hamt_bitmap_node", "context"},        {"hamt_array_node", "context"},
  };
  for (const auto& entry : known) {
    if (std::strcmp(type, entry.type) == 0) return entry.holds;
  }
  return nullptr;
}

Label ObjectLabel(PyObject* parent, PyObject* child) {
  Label label = Plain("attr");
  label.owner = QualifiedName(Py_TYPE(parent));
  if (PyObject* name = LtInlineAttributeName(parent, child)) {
    label.text = Utf8(name);
    return label;
  }
  if (LtInstanceDict(parent) == child) return Plain("hop", "dict");
  if (PyFunction_Check(parent)) return FunctionLabel(reinterpret_cast<PyFunctionObject*>(parent), child);
  if (PyCell_Check(parent)) return Plain("hop", "cell");
  if (PyType_Check(parent) && reinterpret_cast<PyTypeObject*>(parent)->tp_dict == child)
    return Plain("hop", "dict");
  if (PyModule_Check(parent) && PyModule_GetDict(parent) == child) return Plain("hop", "dict");
  if (PyExceptionInstance_Check(parent)) {
    return ExceptionLabel(reinterpret_cast<PyBaseExceptionObject*>(parent), child);
  }
  PyObject* name = nullptr;
  if (PyCodeObject* code = LtSuspendedLocal(parent, child, &name)) {
    label.op = "local";
    FillCode(&label, code);
    label.text = Utf8(name);
    return label;
  }
  if (const char* hidden = HiddenName(parent)) return Plain("hidden", hidden);
  if (MemberName(parent, child, &label.text)) return label;
  if (std::strcmp(Py_TYPE(parent)->tp_name, "traceback") == 0) {
    const PyTracebackObject* at = reinterpret_cast<PyTracebackObject*>(parent);
    return Plain("attr", child == reinterpret_cast<PyObject*>(at->tb_frame) ? "tb_frame" : "tb_next");
  }
  return Plain("hidden", Py_TYPE(parent)->tp_name);
}

}  // namespace

std::string TypeText(const Census& census, NodeId node) {
  switch (census.origin[node]) {
    case Origin::kFrame:
      return "frame";
    case Origin::kPython:
      return QualifiedName(static_cast<PyTypeObject*>(const_cast<void*>(TypeOfNumber(census.type[node]))));
    case Origin::kNative:
      break;
  }
  const uint64_t vtable = reinterpret_cast<uint64_t>(TypeOfNumber(census.type[node]));
  std::string name = Reader().TypeOf(vtable).name;
  const size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

namespace {

Label FrameLabel(const Census& census, NodeId frame, uint16_t slot) {
  Label label = Plain("local");
  for (const FrameInfo& info : census.frames) {
    if (TypeNumber(info.code) != census.type[frame]) continue;
    FillCode(&label, info.code);
    label.line = info.line;
    label.text = Utf8(LtSlotName(info.code, slot));
    if (label.text.empty()) label = Plain("hop", "function");
    break;
  }
  return label;
}

Label ContainerLabel(const Census& census, const std::vector<NodeId>& nodes, size_t i) {
  PyObject* parent = census.object(nodes[i]);
  PyObject* child = census.object(nodes[i + 1]);
  const NodeId owner = i ? nodes[i - 1] : heap::kNone;
  PyObject* owner_object =
      owner != heap::kNone && census.origin[owner] == Origin::kPython ? census.object(owner) : nullptr;
  if (PyDict_Check(parent) && LtInstanceDict(parent) != child) {
    const bool is_namespace = census.graph.kind[nodes[i]] == Kind::kNamespace;
    return DictLabel(census, owner, parent, child, is_namespace);
  }
  if (PyTuple_Check(parent)) return TupleLabel(owner_object, parent, child);
  if (PyAnySet_Check(parent)) return Plain("member");
  if (PyList_Check(parent) || census.graph.kind[nodes[i]] == Kind::kSequence) {
    if (LtInstanceDict(parent) == child) return Plain("hop", "dict");
    Label label = Plain("index");
    if (HiddenName(parent)) label = Plain("hidden", HiddenName(parent));
    return label;
  }
  return ObjectLabel(parent, child);
}

}  // namespace

Label Describe(const Census& census, const std::vector<NodeId>& nodes, size_t i, uint64_t edge) {
  const uint16_t slot = census.graph.slot[edge];
  const NodeId parent = nodes[i], child = nodes[i + 1];
  Label label;
  if (census.origin[parent] == Origin::kFrame)
    label = FrameLabel(census, parent, slot);
  else if (IsNativeSlot(slot) || census.origin[parent] == Origin::kNative)
    label = NativeLabel(slot);
  else
    label = ContainerLabel(census, nodes, i);
  if (census.graph.kind[parent] == Kind::kTensor && census.graph.kind[child] == Kind::kAutograd) {
    label = NativeLabel(kSlotGradFn);
  }
  label.type = TypeText(census, child);
  return label;
}

Label DescribeRoot(const Census& census, const heap::Root& root) {
  Label label;
  label.type = TypeText(census, root.node);
  switch (root.kind) {
    case heap::RootKind::kFrame:
    case heap::RootKind::kStack: {
      const FrameInfo& frame = census.frames[root.detail];
      label.op = root.kind == heap::RootKind::kFrame ? "frame" : "stack";
      FillCode(&label, frame.code);
      label.line = frame.line;
      break;
    }
    case heap::RootKind::kModule:
      label.op = "module";
      label.text = census.modules[root.detail];
      label.file = Utf8(PyDict_GetItemString(census.object(root.node), "__file__"));
      break;
    case heap::RootKind::kThread:
      label.op = "thread";
      break;
    case heap::RootKind::kWeak:
      label.op = PyType_Check(census.object(root.node)) ? "class" : "globals";
      if (label.op == "class")
        label.text = QualifiedName(reinterpret_cast<PyTypeObject*>(census.object(root.node)));
      else
        label.text = Utf8(PyDict_Check(census.object(root.node))
                              ? PyDict_GetItemString(census.object(root.node), "__name__")
                              : nullptr);
      break;
    case heap::RootKind::kForeign:
      label.op = "foreign";
      break;
    case heap::RootKind::kIsland:
      label.op = "island";
      break;
  }
  return label;
}

}  // namespace lowtide::walk
