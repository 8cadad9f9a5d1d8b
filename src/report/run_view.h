#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finding/document.h"

namespace lowtide::report {

// One pool of one rank over the run, thinned for showing.
struct SeriesView {
  struct Point {
    uint64_t step = 0;
    double value = 0;  // bytes at the step's end
    double low = 0;    // the lower edge: what later steps never went below
  };
  std::string pool;
  int rank = 0;
  std::vector<Point> points;
  std::optional<double> capacity;  // bytes
  std::optional<double> now = std::nullopt;  // the newest value, where `points` are thinned
};

// Steps that belonged to a phase other than training, for the charts' bands.
struct PhaseSpan {
  std::string phase;  // "validation", "epoch", "checkpoint", "other"
  uint64_t first_step = 0, last_step = 0;
};

struct RankView {
  int rank = 0;
  std::string role;  // "trainer", "worker", "launcher"
  int64_t pid = 0;
  std::string host = {};
  uint64_t steps = 0;
  double seconds = 0;   // from the first to the last step
  std::string ended;    // "exit 0", "killed by signal 9", "still running", ...
  uint64_t lost = 0;    // records lost or torn
  std::vector<PhaseSpan> phases;  // in order, at most a few hundred
};

// All that the reports of a run show.
struct RunView {
  std::string folder;   // where the rings and findings.json are
  std::string command;  // as the user typed it
  std::string folder_display;
  std::optional<int> exit_code;
  double seconds = 0;
  std::vector<RankView> ranks;
  std::vector<SeriesView> series;
  finding::Document document;
};

}  // namespace lowtide::report
