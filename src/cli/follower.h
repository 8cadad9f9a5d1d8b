#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "cli/judge.h"
#include "record/ring_reader.h"
#include "report/run_view.h"

namespace lowtide::cli {

// Follows the rings of a run folder from outside, read only: every Look reads what was written since the last one.
class Follower {
 public:
  Follower(std::string folder, JudgeOptions options) : folder_(std::move(folder)), options_(options) {}

  // What is known now: ranks, series, verdicts, and a finding for each ring that cannot be read.
  report::RunView Look();
  // Whether there were rings and every process that wrote one has ended.
  bool Ended() const { return ended_; }

 private:
  struct Rank {
    Rank(record::Ring opened, JudgeOptions options) : ring(std::move(opened)), judge(options) {}
    record::Ring ring;
    RankJudge judge;
    report::RankView view;
    std::vector<report::SeriesView> series;
    std::vector<finding::VerdictRow> verdicts;
  };

  void FindRings();
  void Update(Rank& rank);

  std::string folder_;
  JudgeOptions options_;
  std::map<int64_t, std::unique_ptr<Rank>> ranks_;   // by pid: a ring is renamed once its rank is known
  std::set<std::string> known_;                      // files of these
  std::map<std::string, std::string> unreadable_;    // file -> why
  bool ended_ = false;
};

}  // namespace lowtide::cli
