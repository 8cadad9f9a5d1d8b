#pragma once

#include <unordered_map>

#include "python/walk_graph.h"

namespace lowtide::walk {

// What the walk wants to know of a Python type, asked once a type.
struct TypeInfo {
  enum class Special : uint8_t {
    kNone,
    kTensor,
    kStorage,
    kContext,
    kGraphNode,
    kArray,
    kDict,
    kList,
    kSet,
    kDeque,
    kFunction,
    kType,
    kFrame,
    kGenerator,
    kModule,
    kStr,
    kLong,
    kByteArray,
    kTypedArray,
    kSized,
  };
  PyTypeObject* type = nullptr;
  uint32_t number = 0;
  Special special = Special::kNone;
  Kind kind = Kind::kObject;
  bool gc = false;            // its instances may be tracked; ask `type->tp_is_gc` when there is one
  uint32_t fixed_bytes = 0;   // header and basic size
  PyObject* sizer = nullptr;  // its own __sizeof__ in C, borrowed
};

class TypeTable {
 public:
  const TypeInfo& Of(PyTypeObject* type) {
    Entry& entry = recent_[reinterpret_cast<uintptr_t>(type) >> 5 & 1023];
    if (entry.type != type) entry = {type, &Slow(type)};
    return *entry.info;
  }

 private:
  struct Entry {
    PyTypeObject* type = nullptr;
    const TypeInfo* info = nullptr;
  };
  const TypeInfo& Slow(PyTypeObject* type);

  Entry recent_[1024];
  std::unordered_map<PyTypeObject*, TypeInfo> all_;
};

inline bool IsCollected(PyObject* object, const TypeInfo& info) {
  return info.gc && (!info.type->tp_is_gc || info.type->tp_is_gc(object));
}

// Bytes of the object itself, without what it refers to.
uint64_t OwnBytes(PyObject* object, const TypeInfo& info);

// The slot of a variable in a module's dict. By name: by position, the deletion of one would move all that come after it.
inline uint32_t NamespaceSlot(PyObject* name, Py_ssize_t position) {
  const Py_hash_t hash = PyUnicode_CheckExact(name) ? PyObject_Hash(name) : position;
  return static_cast<uint32_t>(static_cast<size_t>(hash) % (kSlotNative - 1));
}

// numpy: bytes of an array's own buffer (0: another object's); its elements when they are Python objects.
uint64_t ArrayBytes(PyObject* array);
PyObject* ArrayBase(PyObject* array);
PyObject** ArrayObjects(PyObject* array, size_t* count);

}  // namespace lowtide::walk
