#pragma once

#include <string>
#include <vector>

#include "finding/document.h"

namespace lowtide::cli {

// Removes what the ranks of an earlier run left in `folder` beside their rings.
void ForgetRankFiles(const std::string& folder);

// What the ranks left beside their rings: holders-rank<N>.json (an array of holder rows) and findings-rank<N>.jsonl
// (one finding a line). Unknown fields are passed over; a damaged line becomes a finding LT903 that names it.
void ReadRankFiles(const std::string& folder, finding::Document& document);

}  // namespace lowtide::cli
