#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/follower.h"
#include "report/openmetrics.h"

namespace lowtide::cli {

struct FleetOptions {
  size_t most_runs = 64;       // labels are bounded: the newest runs are shown
  double keep_seconds = 3600;  // after its end, for a run that was found in a folder of runs
};

// All runs below some places, followed from outside and read only. A place is a run's folder or a folder of
// such; runs and ranks that begin later are found, and what goes away is forgotten.
class Fleet {
 public:
  Fleet(std::vector<std::string> places, FleetOptions options)
      : places_(std::move(places)), options_(options) {}

  // Reads what is new in every run, and says what is known now.
  report::FleetMetrics Look();

  // Those being followed: label -> follower.
  std::map<std::string, const Follower*> Followers() const;

 private:
  struct Run {
    explicit Run(const std::string& folder) : follower(folder, {}) {}
    Follower follower;
    std::string label;
    std::string stamp;                       // of the files that the ranks left
    finding::Document left;                  // what they say
    std::vector<finding::Finding> compared;  // between ranks (LT6xx)
    double compared_at = 0;                  // seconds, monotonic; 0: never
    bool compared_ended = false;             // after the last step
  };

  void FindRuns();
  void NameRuns();
  bool Old(const std::string& folder) const;
  void ReadFiles(const std::string& folder, Run& run) const;
  void Compare(const std::string& folder, Run& run) const;
  report::RunMetrics Metrics(const Run& run) const;

  std::vector<std::string> places_;
  FleetOptions options_;
  std::map<std::string, std::unique_ptr<Run>> runs_;  // by canonical folder
  JudgeBudget budget_;
  uint64_t left_out_ = 0;
};

// What is exported of one process.
report::RankMetrics RankMetricsOf(const Follower::Followed& rank);

}  // namespace lowtide::cli
