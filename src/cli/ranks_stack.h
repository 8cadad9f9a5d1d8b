#pragma once

#include <cstdint>
#include <string>

#include "cli/ranks_facts.h"

namespace lowtide::cli {

struct StackFrame {
  std::string file, function;  // empty: none is known
  int line = 0;
};

// How large a rank's stack file is now.
uint64_t SizeOfStacks(const std::string& folder, const RankFacts& facts);

// Asks a rank on this machine to write its stack, by the signal that it named; only if the process still handles it.
// False when it was not asked.
bool AskForStack(const RankFacts& facts);

// The innermost frame of the user's own code among what came since `offset`; of libraries only when there is no other.
StackFrame InnermostFrame(const std::string& folder, const RankFacts& facts, uint64_t offset);

}  // namespace lowtide::cli
