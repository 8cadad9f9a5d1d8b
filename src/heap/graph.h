#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "heap/array.h"

namespace lowtide::heap {

using NodeId = uint32_t;
inline constexpr NodeId kNone = 0xffffffffu;

// What a node is, as far as naming a holder cares.
enum class Kind : uint8_t {
  kObject,     // any other object: it holds by named slots (attributes)
  kNamespace,  // a frame or a module's dict: never a holder itself, the variable in it is
  kSequence,   // list, tuple, deque, set, object array: it holds by position
  kMapping,    // dict: by key
  kTensor,     // TensorImpl together with its Python object
  kStorage,    // StorageImpl
  kAutograd,   // a node of the autograd graph
  kBytes,      // holds nothing: array, bytes
};

// How a root holds. The order of the roots is the order in which paths prefer them.
enum class RootKind : uint8_t {
  kFrame,    // a running function's frame
  kModule,   // a module's dict
  kThread,   // what the interpreter keeps per thread: locals, context, exception in flight
  kStack,    // a temporary on a running function's evaluation stack, such as a loop's iterator
  kWeak,     // only a class of living instances, or the globals of living functions
  kForeign,  // more references than the walk found: C or C++ holds it
  kIsland,   // nothing reaches it: a cycle that waits for the collector, or that no collector sees
};

struct Root {
  NodeId node = kNone;
  RootKind kind = RootKind::kFrame;
  uint32_t detail = 0;  // free for the builder: index of the frame, of the module ...
  uint32_t late = 0;  // so many steps longer does a path from here count: names that tell less to the reader
};

// Objects and who refers to whom, in compressed rows. Node ids are dense; edges of node v are
// to[first[v]] .. to[first[v + 1] - 1]. `slot` is the position of the edge among all that its node refers to,
// counting what is no node: the same variable has the same slot in two graphs of one process.
struct ObjectGraph {
  Array<uint64_t> first{0};
  Array<NodeId> to;
  Array<uint16_t> slot;
  Array<uint64_t> bytes;  // the node's own bytes
  Array<Kind> kind;
  std::vector<Root> roots;

  NodeId size() const { return static_cast<NodeId>(bytes.size()); }
};

}  // namespace lowtide::heap
