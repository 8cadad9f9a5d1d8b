#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "heap/address_map.h"
#include "heap/dominators.h"
#include "heap/graph.h"
#include "heap/paths.h"

namespace lowtide::heap {

// One graph of a process with what was worked out about it.
struct Mark {
  const ObjectGraph* graph = nullptr;
  const DominatorTree* tree = nullptr;
  const PathTree* paths = nullptr;
  const Array<uint64_t>* address = nullptr;  // what a node was in memory
  const AddressMap* map = nullptr;                 // and the reverse
  const Array<uint32_t>* type = nullptr;     // equal numbers: the same type, in both marks
  const Array<int16_t>* device =
      nullptr;  // of kStorage nodes: -1 host, -2 shared memory, otherwise the accelerator's index
};

// Bytes by where they live, and how many of what.
struct Amount {
  int64_t host = 0;                  // C heap and Python objects
  int64_t cpu = 0;                   // storages on the CPU
  int64_t shared = 0;                // of them those in shared memory
  std::array<int64_t, 16> device{};  // storages by accelerator index
  int64_t tensors = 0, autograd = 0, objects = 0;

  int64_t Bytes() const;
  Amount& operator+=(const Amount& other);
  Amount& operator-=(const Amount& other);
};

// What entered, less what left, between two marks at one place: a slot of a persistent node.
struct Growth {
  NodeId holder =
      kNone;           // the persistent node, in the later mark; kNone: what entered hangs on a root itself
  uint32_t slots = 0;  // how many of its slots grew
  NodeId sample = kNone;  // the largest of what entered; kNone when the holder itself swelled
  int64_t members = 0;    // how many entered, less how many left
  int64_t bytes = 0;
  std::vector<NodeId> entered;  // in the later mark
  std::vector<NodeId> left;     // in the earlier mark
};

// Everything that entered between the marks, by the place where it entered; largest growth first, at least
// `least_bytes` each. A node counts as the same in both marks when its address, its type and its dominator
// are, and the variable or attribute that holds it: memory that was freed and used anew for something else counts as one that left and one that entered.
//  - containers (lists, dicts) are one place; of any other node each slot is a place of its own;
//  - a slot that holds another object than before counts with the difference.
std::vector<Growth> CompareMarks(const Mark& before, const Mark& after, int64_t least_bytes);

// What hangs on the nodes given (with all they dominate), in one pass over the graph.
std::vector<Amount> Amounts(const Mark& mark, const std::vector<NodeId>& nodes);

}  // namespace lowtide::heap
