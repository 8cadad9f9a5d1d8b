#include "python/walk_types.h"

#include <algorithm>
#include <cstring>

namespace lowtide::walk {
namespace {

bool HasBaseNamed(PyTypeObject* type, const char* name) {
  for (; type; type = type->tp_base) {
    if (std::strcmp(type->tp_name, name) == 0) return true;
  }
  return false;
}

// The head of numpy's array object, which has not changed since numpy 1.7.
struct ArrayHead {
  PyObject_HEAD char* data;
  int dimensions;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  PyObject* base;
  PyObject* descr;
  int flags;
};
constexpr uint64_t kFrameSlots = 160;  // what a frame's variables and evaluation stack take, about
constexpr int kOwnsData = 0x4;

// array.array
struct TypedArrayHead {
  PyObject_VAR_HEAD char* items;
  Py_ssize_t allocated;
  const struct {
    char typecode;
    int itemsize;
  } * descr;
};

using Special = TypeInfo::Special;

struct Named {
  PyTypeObject* type;
  Special special;
  Kind kind;
};

void Classify(PyTypeObject* type, TypeInfo* info) {
  const Named builtin[] = {
      {&PyDict_Type, Special::kDict, Kind::kMapping},
      {&PyList_Type, Special::kList, Kind::kSequence},
      {&PyTuple_Type, Special::kNone, Kind::kSequence},
      {&PySet_Type, Special::kSet, Kind::kSequence},
      {&PyFrozenSet_Type, Special::kSet, Kind::kSequence},
      {&PyUnicode_Type, Special::kStr, Kind::kBytes},
      {&PyLong_Type, Special::kLong, Kind::kBytes},
      {&PyByteArray_Type, Special::kByteArray, Kind::kBytes},
      {&PyFunction_Type, Special::kFunction, Kind::kObject},
      {&PyModule_Type, Special::kModule, Kind::kObject},
      {&PyType_Type, Special::kType, Kind::kObject},
      {&PyFrame_Type, Special::kFrame, Kind::kObject},
      {g_layout.tensor_type, Special::kTensor, Kind::kTensor},
      {g_layout.storage_type, Special::kStorage, Kind::kStorage},
      {g_layout.function_type, Special::kContext, Kind::kAutograd},
  };
  // Variable-sized by their type, without a size field of their own.
  if (type == &PyGen_Type || type == &PyCoro_Type || type == &PyAsyncGen_Type) {
    info->special = Special::kGenerator;
    return;
  }
  for (const Named& known : builtin) {
    if (!known.type || !PyType_IsSubtype(type, known.type)) continue;
    info->special = known.special;
    info->kind = known.kind;
    return;
  }
  if (g_layout.graph_node && type->tp_traverse == g_layout.graph_traverse) {
    info->special = Special::kGraphNode;
    info->kind = Kind::kAutograd;
  } else if (HasBaseNamed(type, "numpy.ndarray")) {
    info->special = Special::kArray;
    info->kind = Kind::kSequence;
  } else if (HasBaseNamed(type, "collections.deque")) {
    info->special = Special::kDeque;
    info->kind = Kind::kSequence;
  } else if (HasBaseNamed(type, "array.array")) {
    info->special = Special::kTypedArray;
    info->kind = Kind::kBytes;
  }
}

// The type's own __sizeof__ if it is written in C (one written in Python must not be run here).
PyObject* SizerOf(PyTypeObject* type) {
  for (PyTypeObject* t = type; t && t != &PyBaseObject_Type; t = t->tp_base) {
    // Only the modules whose buffers are known to matter: calling what a stranger wrote is not worth the
    // risk.
    if (std::strncmp(t->tp_name, "_io.", 4) != 0 && std::strncmp(t->tp_name, "collections.Ordered", 19) != 0)
      continue;
    PyObject* found = t->tp_dict ? PyDict_GetItemString(t->tp_dict, "__sizeof__") : nullptr;
    if (found && Py_IS_TYPE(found, &PyMethodDescr_Type)) return found;
  }
  return nullptr;
}

}  // namespace

const TypeInfo& TypeTable::Slow(PyTypeObject* type) {
  const auto [at, fresh] = all_.try_emplace(type);
  TypeInfo& info = at->second;
  if (!fresh) return info;
  info.type = type;
  info.number = TypeNumber(type);
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) NoteStaticType(info.number);
  info.gc = PyType_HasFeature(type, Py_TPFLAGS_HAVE_GC) && type->tp_traverse;
  info.fixed_bytes = static_cast<uint32_t>(type->tp_basicsize + LtHeaderBytes(type));
  Classify(type, &info);
  if (info.special == TypeInfo::Special::kNone) {
    info.sizer = SizerOf(type);
    if (info.sizer) info.special = TypeInfo::Special::kSized;
  }
  return info;
}

namespace {

uint64_t StrBytes(PyObject* object) {
#if PY_VERSION_HEX < 0x030C0000
  if (PyUnicode_READY(object) != 0) return sizeof(PyUnicodeObject);
#endif
  const size_t head = PyUnicode_IS_ASCII(object) ? sizeof(PyASCIIObject) : sizeof(PyCompactUnicodeObject);
  return head + (static_cast<size_t>(PyUnicode_GET_LENGTH(object)) + 1) * PyUnicode_KIND(object);
}

uint64_t SizedBytes(PyObject* object, const TypeInfo& info) {
  PyObject* result = PyObject_Vectorcall(info.sizer, &object, 1, nullptr);
  const Py_ssize_t bytes = result && PyLong_Check(result) ? PyLong_AsSsize_t(result) : -1;
  Py_XDECREF(result);
  if (bytes < 0) {
    PyErr_Clear();
    return info.fixed_bytes;
  }
  return static_cast<uint64_t>(bytes);
}

uint64_t DequeBytes(PyObject* object) {
  const uint64_t length = static_cast<uint64_t>(std::max<Py_ssize_t>(0, Py_SIZE(object)));
  return (length / 64 + 1) * 66 * sizeof(void*);  // blocks of 64 items and two links
}

}  // namespace

uint64_t OwnBytes(PyObject* object, const TypeInfo& info) {
  const uint64_t fixed = info.fixed_bytes;
  switch (info.special) {
    case Special::kStr:
      return StrBytes(object);
    case Special::kLong:
      return 32;
    case Special::kDict:
      return fixed + static_cast<uint64_t>(LtDictBytes(object));
    case Special::kList:
      return fixed + static_cast<uint64_t>(((PyListObject*)object)->allocated) * sizeof(void*);
    case Special::kSet: {
      const PySetObject* set = reinterpret_cast<PySetObject*>(object);
      return fixed +
             (set->table != set->smalltable ? (static_cast<uint64_t>(set->mask) + 1) * sizeof(setentry) : 0);
    }
    case Special::kDeque:
      return fixed + DequeBytes(object);
    case Special::kByteArray:
      return fixed + static_cast<uint64_t>(((PyByteArrayObject*)object)->ob_alloc);
    case Special::kArray:
      return fixed + ArrayBytes(object);
    case Special::kTypedArray: {
      const TypedArrayHead* array = reinterpret_cast<TypedArrayHead*>(object);
      return fixed + static_cast<uint64_t>(array->allocated) * static_cast<uint64_t>(array->descr->itemsize);
    }
    case Special::kFrame:
    case Special::kGenerator:
      return fixed + kFrameSlots;
    case Special::kSized:
      return SizedBytes(object, info);
    default:
      break;
  }
  const Py_ssize_t item = info.type->tp_itemsize;
  if (item <= 0 || info.special == Special::kType) return fixed;
  return fixed +
         static_cast<uint64_t>(item) * static_cast<uint64_t>(std::max<Py_ssize_t>(0, Py_SIZE(object)));
}

uint64_t ArrayBytes(PyObject* object) {
  const ArrayHead* array = reinterpret_cast<ArrayHead*>(object);
  if (!(array->flags & kOwnsData) || array->dimensions <= 0 || array->dimensions > 64) return 0;
  uint64_t bytes = 0;
  for (int i = 0; i < array->dimensions; ++i) {
    if (array->shape[i] == 0) return 0;
    const Py_ssize_t stride = array->strides[i];
    bytes = std::max(
        bytes, static_cast<uint64_t>(array->shape[i]) * static_cast<uint64_t>(stride < 0 ? -stride : stride));
  }
  return bytes;
}

PyObject* ArrayBase(PyObject* object) { return reinterpret_cast<ArrayHead*>(object)->base; }

PyObject** ArrayObjects(PyObject* object, size_t* count) {
  const ArrayHead* array = reinterpret_cast<ArrayHead*>(object);
  *count = 0;
  if (!(array->flags & kOwnsData) || !(array->flags & 1)) return nullptr;  // contiguous ones only
  // dtype objects of numpy begin {PyObject_HEAD; typeobj; kind; type; byteorder; ...}: 'O' is an object
  // reference.
  const char kind = *(reinterpret_cast<const char*>(array->descr) + sizeof(PyObject) + sizeof(void*));
  if (kind != 'O') return nullptr;
  *count = ArrayBytes(object) / sizeof(PyObject*);
  return reinterpret_cast<PyObject**>(array->data);
}

}  // namespace lowtide::walk
