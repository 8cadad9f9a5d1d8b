#pragma once

#include <string>
#include <vector>

#include "cli/rank_files.h"
#include "finding/document.h"

namespace lowtide::cli {

// Whether bytes of one of these pools may show in the other: a tensor's bytes in cpu, its graph's nodes in heap.
bool SameMemory(const std::string& a, const std::string& b);

// A census names all that grew between its two looks, also where what leaks is not among it. Takes such names off the
// document (the rank's file keeps them), and says of each leak without a name why it has none.
void SiftHolders(const std::vector<CensusFacts>& censuses, finding::Document& document);

// A leak's place is the line where its first holder grows, and its help what that kind of holder needs.
void PlaceLeaks(finding::Document& document);

}  // namespace lowtide::cli
