#pragma once

#include <cstdint>
#include <vector>

#include "snapshot/lifetimes.h"

namespace lowtide::report {

// Live (requested) and reserved bytes after each event, thinned: bucket i covers events [i * per, (i + 1) *
// per).
struct Levels {
  size_t events = 0, per_bucket = 1;
  std::vector<uint64_t> low, high;  // of live bytes in each bucket
  std::vector<uint64_t> reserved;   // highest in each bucket
  std::vector<int64_t> time_us;     // of each bucket's first event; 0 where not recorded
};

// At most `most` buckets.
Levels MeasureLevels(const snapshot::Lifetimes& lifetimes, uint64_t reserved_at_end, size_t most);

}  // namespace lowtide::report
