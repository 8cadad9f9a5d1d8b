#pragma once

#include <cstdint>

#include "snapshot/model.h"

namespace lowtide::snapshot {

// What a file's keys tell about its writer; masks of 1 << Known.
struct FamilyFacts {
  bool list_form = false;
  uint64_t top_keys = 0, event_keys = 0, block_keys = 0, segment_keys = 0;
};

// Fills snapshot.family ("2.5-2.7") and snapshot.missing. Only for the reader's words: no figure depends on
// it.
void NameFamily(const FamilyFacts& facts, Snapshot& snapshot);

}  // namespace lowtide::snapshot
