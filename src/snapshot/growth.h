#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "snapshot/call_sites.h"
#include "snapshot/lifetimes.h"

namespace lowtide::snapshot {

// Where the steps of training end in a trace.
struct Steps {
  std::string
      how;  // "ProfilerStep annotations", "optimizer marks", "a period found in the trace", "" for none
  std::vector<size_t> ends;  // event numbers; step i is [ends[i-1], ends[i]), step 0 begins at 0
};
Steps FindSteps(const Snapshot& snapshot, const Lifetimes& lifetimes, CallSites& sites);

// Memory of one stack that is born in step after step and does not die.
struct StackGrowth {
  StackId stack = 0;
  std::string label, file, function;
  int line = 0;
  uint64_t bytes = 0;  // alive at the end, born in the steps judged
  uint64_t blocks = 0;
  double bytes_per_step = 0;                 // Theil-Sen slope of what the stack holds at step ends
  std::pair<double, double> interval{0, 0};  // the middle half of the pairwise slopes
  uint64_t steps_with_births = 0;            // of survivors
  std::string verdict;                       // leak, bounded
};

struct Growth {
  std::string verdict;  // leak, bounded, healthy, insufficient
  std::string reason;
  Steps steps;
  uint64_t steps_judged = 0;
  std::optional<uint64_t> steps_needed;
  double bytes_per_step = 0;  // of the leaking stacks together
  std::pair<double, double> interval{0, 0};
  std::optional<uint64_t> onset_step;
  double confidence = 0;
  std::vector<StackGrowth> stacks;  // growing ones, fastest first
};
Growth JudgeGrowth(const Snapshot& snapshot, const Lifetimes& lifetimes, CallSites& sites);

}  // namespace lowtide::snapshot
