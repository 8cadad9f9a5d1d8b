#pragma once

#include <string>
#include <vector>

#include "heap/paths.h"
#include "python/walk_graph.h"

namespace lowtide::walk {

// One step of a path as Python would write it.
//   op: "local" (variable of a function), "global", "attr", "item" (text is the key's repr), "index",
//   "member" (of a set), "key" (held as a dict's key), "closure", "default" (argument), "hidden" (held by C
//   code of a builtin, text says as what), "via" (through PyTorch's C++ objects), "hop" (bookkeeping between
//   two others, not to be printed).
struct Label {
  std::string op, text;
  std::string type;   // of what is reached by this step
  std::string owner;  // of "attr": module.qualname of the class that has it; of code: its qualname
  std::string file;   // of code that owns the variable
  int first_line = 0, line = 0;
};

// What a node is called: the Python type's qualified name, a function's, or the C++ class's.
std::string TypeText(const Census& census, NodeId node);

// The step from nodes[i] to nodes[i + 1] over edge `edge`.
Label Describe(const Census& census, const std::vector<NodeId>& nodes, size_t i, uint64_t edge);

// The root from which a path starts, as its first step.
Label DescribeRoot(const Census& census, const heap::Root& root);

}  // namespace lowtide::walk
