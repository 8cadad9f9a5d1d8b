#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "cli/ranks_exits.h"
#include "finding/finding.h"
#include "record/ring_reader.h"

namespace lowtide::cli {

// Looks after the ranks of a live run on this machine: who was killed, who is stopped, who lets the others wait. What it
// finds goes to findings-observer.jsonl of the run's folder at once, so that it is there also when the run is killed.
class RankWatch {
 public:
  RankWatch(std::string folder, bool alarms, Terminal terminal, std::string lang);

  // `rings`: of all processes of the run, as of now. Does something about four times a second. Never throws.
  void Look(const std::vector<const record::Ring*>& rings) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  struct Rank {
    int rank = 0, pid = 0;
    char state = 0;              // of /proc/<pid>/stat; 0: the process is gone
    uint64_t step = 0;
    double usual = 0;            // seconds of a step
    Clock::time_point progress;  // when the step last changed
    double waited = 0;           // seconds that it has been waiting for others; 0: it does not wait
    std::string waits_for;       // the collective
    uint64_t waits = 0;
    record::ExitState ended = record::ExitState::kRunning;
    int signal = 0;              // that ended it, where it left that word
    bool training = true;        // no validation or checkpoint is under way
    Clock::time_point stopped{};
    uint64_t stacks_seen = 0;    // bytes of its stack file before it was asked
    int64_t ended_ns = 0;        // CLOCK_MONOTONIC, where it left a word
    bool died() const;           // it is gone for no reason of its script's
  };

  struct Told {
    finding::Finding finding;
    Clock::time_point since;
    bool over = false;
  };

  void Update(const record::Ring& ring);
  void Died();
  bool AfterFailure(const Rank& rank);
  void Stopped();
  void Hangs();
  finding::Finding HangFinding(const std::vector<Rank*>& waiting, const std::vector<Rank*>& others, double seconds);
  void AskForStacks();
  std::string StackOf(const Rank& rank, finding::Finding& finding) const;
  void Tell(const std::string& key, finding::Finding finding);
  void Over(const std::string& key);
  void Write(const finding::Finding& finding) const;

  std::string folder_, host_, lang_;
  bool alarms_;
  Terminal terminal_;
  double patience_;              // seconds without a step before ranks may be said to hang
  Clock::time_point next_{}, asked_{};
  std::map<int, Rank> ranks_;    // by pid
  std::map<std::string, Told> told_;
  bool first_death_told_ = false;
  ExitTimes exits_;
  size_t exits_seen_ = 0;
};

}  // namespace lowtide::cli
