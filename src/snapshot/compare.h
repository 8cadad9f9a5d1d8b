#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "snapshot/explain.h"

namespace lowtide::snapshot {

// One place in two snapshots, at their peaks or at their ends.
struct Change {
  std::string label, file;
  int line = 0;
  uint64_t before = 0, after = 0;
  int64_t delta() const { return static_cast<int64_t>(after - before); }
};

// Two snapshots of the same program, per device. Stacks are matched by what the user's code shows of them,
// since addresses, C++ frames and line tables differ between runs.
struct DeviceDiff {
  int device = 0;
  uint64_t peak_before = 0, peak_after = 0, held_before = 0, held_after = 0, reserved_before = 0,
           reserved_after = 0;
  std::vector<Change> by_stack,
      by_line;  // at the peak, largest change first; sums to peak_after - peak_before
  std::vector<Change> held_by_stack, held_by_line;  // when the snapshots were taken
};
std::vector<DeviceDiff> Compare(Explanation& before, Explanation& after);

// Several files as ranks of one job.
struct RankRow {
  int rank = 0;
  std::string file;
  int device = 0;
  uint64_t peak = 0, reserved = 0, allocated = 0;
  int64_t first_oom_us = 0;  // 0: none, or no times
  bool died = false;
  std::string growth;
};
struct Ranks {
  std::vector<RankRow> rows;          // by rank
  int highest = -1, first_dead = -1;  // rows
  double imbalance = 0;               // highest peak over the median peak, less 1
  uint64_t median_peak = 0;
};
Ranks JoinRanks(const std::vector<Explanation>& files);
// The rank in a file name ("rank3", "000003_step_10", "snapshot_3.pickle"), or `fallback`.
int RankOfFile(const std::string& path, int fallback);
std::vector<finding::Finding> FindRankProblems(const Ranks& ranks);

}  // namespace lowtide::snapshot
