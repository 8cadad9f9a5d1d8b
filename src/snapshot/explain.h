#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finding/finding.h"
#include "snapshot/growth.h"
#include "snapshot/oom.h"
#include "snapshot/peak.h"

namespace lowtide::snapshot {

struct ExplainOptions {
  std::optional<uint64_t> capacity;  // of each device, bytes
  std::string replay;                // settings, "best", or empty: no replay
};

// One device of one file.
struct DeviceReport {
  int device = 0;
  uint64_t reserved = 0, allocated = 0, active = 0, requested = 0;
  uint64_t segments = 0, blocks = 0, events = 0;
  size_t stacks = 0;
  Lifetimes lifetimes;
  Holders peak;
  std::optional<int64_t> peak_time_us;
  Fragmentation fragmentation;
  std::vector<OomReport> ooms;
  Growth growth;
  std::optional<ReplayCheck> check;         // with a replay
  std::optional<WhatIf> recorded, what_if;  // --replay SETTINGS
  std::optional<Recommendation> search;     // --replay best
};

// A file explained. Holds the snapshot, since the reports point into it.
struct Explanation {
  std::unique_ptr<Snapshot> snapshot;
  std::unique_ptr<CallSites> sites;
  int rank = 0;
  std::vector<DeviceReport> devices;
  std::vector<finding::Finding> findings;
};

Explanation Explain(Snapshot snapshot, const ExplainOptions& options);

// The findings of one explained file; called by Explain().
std::vector<finding::Finding> FindProblems(const Explanation& explanation);

}  // namespace lowtide::snapshot
