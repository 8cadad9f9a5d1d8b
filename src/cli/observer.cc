#include "cli/observer.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "base/terminal.h"
#include "base/units.h"
#include "report/phrases.h"

namespace lowtide::cli {
namespace {

constexpr auto kScanEvery = std::chrono::milliseconds(200);
constexpr uint64_t kJudgeEvery = 12;      // iterations of the training loop
constexpr uint64_t kCensusSpan = 56;      // between the two censuses: events every 25 iterations occur twice
constexpr uint64_t kLeastSpan = 8;        // steps
constexpr uint64_t kShortRun = 3000;      // steps during which a poll must not come late

bool OfThisHost(const char* host) {
  char own[sizeof(record::FileHeader::hostname)] = {};
  ::gethostname(own, sizeof own - 1);
  return std::string_view(own) == host;
}

}  // namespace

int Observer::SleepMilliseconds() const { return steps_ < kShortRun ? 20 : 200; }

void Observer::Poll() noexcept {
  try {
    if (Clock::now() >= next_scan_) FindRings();
  } catch (const std::exception&) {
    // The folder cannot be listed just now; the next scan tries again.
  }
  for (auto& [pid, rank] : ranks_) {
    try {
      Follow(*rank);
    } catch (const std::exception&) {
      // The ring went away or is being replaced; the report at the end reads it again.
    }
  }
  try {
    const std::vector<record::Ring*> rings = Rings();
    driver_.Look(rings);
    EndEarly(exit_.Look(rings));
    if (rings.size() > 1) together_.Look({rings.begin(), rings.end()});
  } catch (const std::exception&) {
    // As above; the next poll tries again.
  }
}

void Observer::FindRings() {
  next_scan_ = Clock::now() + kScanEvery;
  for (const std::string& path : record::ListRings(folder_)) {
    if (known_.count(path)) continue;
    try {
      record::Ring ring = record::Ring::Open(path);
      int64_t pid = ring.header().pid;
      if (pid <= 0) continue;
      known_.insert(path);
      if (!OfThisHost(ring.header().hostname)) continue;  // a folder shared by hosts: each looks after its own ranks
      if (!ranks_.count(pid)) ranks_[pid] = std::make_unique<Rank>(std::move(ring), options_.judge);
    } catch (const Error&) {
      // Not whole yet, or in another host's memory.
    }
  }
}

void Observer::Follow(Rank& rank) {
  if (rank.ring.Refresh() == 0) return;
  rank.judge.Update(rank.ring);
  steps_ = std::max(steps_, rank.judge.steps());
  if (rank.judge.steps() < rank.judged_step + StepsOf(rank, kJudgeEvery) + rank.judged_step / 64) return;
  rank.judged_step = rank.judge.steps();
  auto judgements = rank.judge.Judge(false);
  if (options_.census) AskForCensus(rank, judgements);
  if (options_.alarms || options_.exit_at > 0) Alarm(rank, judgements);
}

// Steps in which the loop goes round `iterations` times; some in any case.
uint64_t Observer::StepsOf(const Rank& rank, uint64_t iterations) {
  return std::max(kLeastSpan, static_cast<uint64_t>(static_cast<double>(iterations) / IterationsOf(rank.ring).per_step));
}

// Two censuses: what appeared between the first and the second and stayed is what leaks.
void Observer::AskForCensus(Rank& rank, const std::vector<verdict::Judgement>& judgements) {
  if (rank.second_census) return;
  uint64_t step = rank.judge.steps();
  if (rank.first_census) {
    // A run of known length takes the second as it ends, if it was not asked for before.
    const uint64_t left = options_.steps > rank.first_census ? (options_.steps - rank.first_census) * 3 / 4 : 0;
    const uint64_t span = std::max({StepsOf(rank, kCensusSpan), rank.first_census / 8, left});
    if (step >= rank.first_census + span && rank.ring.RequestCensus()) rank.second_census = step;
    return;
  }
  const bool due = options_.steps && step >= options_.steps / 3;
  if ((rank.suspicion.Is(step, judgements, StepsOf(rank, Suspicion::kLasts)) || due) && rank.ring.RequestCensus()) rank.first_census = step;
}

void Observer::Alarm(Rank& rank, const std::vector<verdict::Judgement>& judgements) {
  report::Words words(options_.lang);
  const Iterations iterations = IterationsOf(rank.ring);
  for (verdict::Judgement judgement : judgements) {
    bool certain = judgement.kind == verdict::Kind::kLeak && judgement.alarm && judgement.pool != "host";
    if (certain) EndEarly(exit_.Leak(Rings(), judgement));
    if (!certain || !options_.alarms || !rank.alarmed.insert(judgement.pool).second) continue;
    CountInIterations(iterations, judgement);
    std::string left = judgement.steps_to_oom
                           ? words.Say(report::Phrase::kAlarmLeft, FormatCount(static_cast<uint64_t>(std::max(0.0, *judgement.steps_to_oom))))
                           : "";
    PrintError("{} {}\n", terminal_.Red("lowtide:"),
               words.Say(report::Phrase::kAlarm, iterations.Of(rank.judge.steps()), judgement.rank, words.Pool(judgement.pool),
                         words.Rate(judgement.pool, judgement.bytes_per_step.value_or(0), true), left));
  }
}

std::vector<record::Ring*> Observer::Rings() const {
  std::vector<record::Ring*> rings;
  for (const auto& [pid, rank] : ranks_) rings.push_back(&rank->ring);
  return rings;
}

void Observer::EndEarly(const std::string& why) const {
  if (why.empty() || !options_.alarms) return;
  PrintError("{} {}\n", terminal_.Red("lowtide:"), why);
}

}  // namespace lowtide::cli
