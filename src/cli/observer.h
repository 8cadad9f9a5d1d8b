#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "cli/driver_log.h"
#include "cli/exit_watch.h"
#include "cli/iterations.h"
#include "cli/judge.h"
#include "cli/ranks_live.h"
#include "cli/suspicion.h"
#include "record/ring_reader.h"

namespace lowtide::cli {

struct ObserverOptions {
  JudgeOptions judge;
  bool census = true;   // ask for who holds the memory once growth is beyond chance
  uint64_t steps = 0;   // after which the run is to end; 0: unknown
  bool alarms = true;   // print when a leak is certain
  double exit_at = 0;   // share of the tightest memory limit at which the run is asked to end; 0: never
  std::string lang = "en";
};

// Looks after a live run from outside: follows the rings of its ranks, judges them, asks for censuses, prints alarms.
class Observer {
 public:
  Observer(std::string folder, ObserverOptions options, Terminal terminal)
      : folder_(std::move(folder)), options_(options), terminal_(terminal),
        exit_(options.exit_at, options.lang), driver_(folder_), together_(folder_, options_.alarms, terminal_, options_.lang) {}

  // Does what is due now; call it every few milliseconds. Never throws: a rank that cannot be read is left alone.
  void Poll() noexcept;
  // How long to sleep until the next Poll: short in the first steps, when a short run may end at any moment.
  int SleepMilliseconds() const;
  uint64_t steps() const { return steps_; }  // of the rank that is furthest

 private:
  using Clock = std::chrono::steady_clock;

  struct Rank {
    explicit Rank(record::Ring opened, JudgeOptions options) : ring(std::move(opened)), judge(options) {}
    record::Ring ring;
    RankJudge judge;
    uint64_t judged_step = 0;
    uint64_t first_census = 0, second_census = 0;  // step of the request; 0: not asked
    Suspicion suspicion;
    std::set<std::string> alarmed;                 // pools
  };

  static uint64_t StepsOf(const Rank& rank, uint64_t iterations);
  void FindRings();
  void Follow(Rank& rank);
  void AskForCensus(Rank& rank, const std::vector<verdict::Judgement>& judgements);
  void Alarm(Rank& rank, const std::vector<verdict::Judgement>& judgements);
  void EndEarly(const std::string& why) const;
  std::vector<record::Ring*> Rings() const;

  std::string folder_;
  ObserverOptions options_;
  Terminal terminal_;
  std::map<int64_t, std::unique_ptr<Rank>> ranks_;  // by pid
  ExitWatch exit_;
  DriverLog driver_;
  RankWatch together_;
  std::set<std::string> known_;                      // files of these, and of other hosts
  Clock::time_point next_scan_{};
  uint64_t steps_ = 0;
};

}  // namespace lowtide::cli
