#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cli/judge.h"
#include "record/ring_reader.h"
#include "report/run_view.h"

namespace lowtide::cli {

// Judging many ranks at every look would take a core of its own: it gets this share of one, and those judged longest ago
// come first. Reading is never put off.
class JudgeBudget {
 public:
  explicit JudgeBudget(double share = 0.01) : share_(share) {}
  // To be called once a look.
  void Begin();
  bool Left() const { return seconds_ > 0; }
  void Spend(double seconds) { seconds_ -= seconds; }

 private:
  double share_, seconds_ = 0, last_ = 0;
};

// Follows the rings of a run folder from outside, read only: every Look reads what was written since the last one.
class Follower {
 public:
  Follower(std::string folder, JudgeOptions options);

  // Reads what is new, and judges it: a rank that was never judged and one that has ended at once, the others within the
  // budget.
  void Refresh(JudgeBudget& budget);
  // The same, and what is known now: ranks, series, verdicts, and a finding for each ring that cannot be read.
  report::RunView Look();

  // One process that has trained, as of the last Refresh; in order of ranks, the newest process of a rank last.
  struct Followed {
    const record::Ring& ring;
    const report::RankView& view;
    const RankJudge& judge;
    const std::vector<verdict::Judgement>& judgements;  // reconciled
    const std::vector<size_t>& cause;                   // as Reconcile gives it
  };
  std::vector<Followed> Ranks() const;
  const std::map<std::string, std::string>& unreadable() const { return unreadable_; }  // file -> why
  // Whether there were rings and every process that wrote one has ended.
  bool Ended() const { return ended_; }

 private:
  struct Rank {
    Rank(record::Ring opened, JudgeOptions options) : ring(std::move(opened)), judge(options) {}
    record::Ring ring;
    RankJudge judge;
    report::RankView view;
    std::vector<verdict::Judgement> judgements;
    std::vector<size_t> cause;
    uint64_t judged_step = 0;
    double judged_at = 0;  // seconds, monotonic
  };
  // A ring is renamed once its rank is known, and pids repeat: from host to host, and from exec to exec.
  using Process = std::tuple<std::string, int64_t, int64_t>;  // host, pid, start

  void Compare();
  void FindRings();
  void Read(Rank& rank);
  void Judge(Rank& rank, JudgeBudget& budget);

  std::string folder_;
  JudgeOptions options_;
  std::map<Process, std::unique_ptr<Rank>> ranks_;
  std::set<std::string> known_;                      // files of these
  std::map<std::string, std::string> unreadable_;    // file -> why
  JudgeBudget budget_;
  std::vector<finding::Finding> between_;            // what the ranks left and what their comparison shows
  double compared_at_ = 0, compare_pause_ = 0;       // seconds
  bool ended_ = false;
};

}  // namespace lowtide::cli
