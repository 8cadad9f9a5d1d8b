#pragma once

#include <string>
#include <vector>

#include "finding/document.h"

namespace lowtide::cli {

// Removes what the ranks of an earlier run left in `folder` beside their rings.
void ForgetRankFiles(const std::string& folder);

// How the censuses of one rank went.
struct CensusFacts {
  int rank = 0;
  uint64_t first_step = 0, second_step = 0;
  bool at_exit = false;  // the second was taken as the script ended, when variables of its functions were gone
  std::string trouble;   // why there is none, in words; empty: there is one
};

// What the ranks left beside their rings: holders-rank<N>.json (holder rows, and how they were come by) and
// findings-rank<N>.jsonl (one finding a line). Unknown fields are passed over; a damaged line becomes a finding LT903
// that names it.
std::vector<CensusFacts> ReadRankFiles(const std::string& folder, finding::Document& document);

}  // namespace lowtide::cli
