#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "snapshot/call_sites.h"
#include "snapshot/lifetimes.h"

namespace lowtide::snapshot {

enum class Category {
  kParameters,
  kGradients,
  kOptimizerState,
  kActivations,
  kTemporaries,
  kCommunication,
  kUnknown
};
inline constexpr int kCategories = 7;
const char* CategoryName(Category category);  // "optimizer_state"

struct Categorized {
  Category category = Category::kUnknown;
  const char* how = "";  // the evidence, in words
};
// By what its allocating and freeing stacks pass through and how long it lived.
Categorized Categorize(const LiveBlock& block, const Lifetimes& lifetimes, CallSites& sites);

// One row of what was held at a moment. Rows of a list sum to the moment's bytes.
struct Share {
  StackId stack = 0;  // by stack only
  std::string label;  // "train.py:31 forward", "activations", "unattributed: older than the trace"
  std::string file;   // empty: not known
  int line = 0;
  std::string function;
  uint64_t bytes = 0;
  uint64_t blocks = 0;
  Category category = Category::kUnknown;
  std::string how;     // how the category was decided
  std::string detail;  // by stack only: the library line and the operator below the user's line
  uint64_t largest_block = 0;
};

struct Holders {
  uint64_t bytes = 0;
  std::vector<Share> by_stack, by_line, by_category;  // each sums to bytes, largest first
};

// Who holds what among `alive`.
Holders SumHolders(const std::vector<LiveBlock>& alive, const Lifetimes& lifetimes, CallSites& sites);

}  // namespace lowtide::snapshot
