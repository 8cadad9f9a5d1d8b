#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "finding/document.h"
#include "finding/finding.h"
#include "series/point.h"

namespace lowtide::verdict {

enum class Kind { kLeak, kBounded, kCapacity, kFragmentation, kStepChange, kHealthy, kInsufficient };
const char* KindName(Kind kind);  // as findings.json has it

// The engine's finer state.
enum class State {
  kTooShort,       // not enough readings for any statement
  kSteady,         // no growth that chance cannot explain
  kSuspect,        // WATCH: growth that chance cannot explain, not (yet) known to last
  kLeak,           // WATCH, still rising, not slowing, beyond every earlier level, lasted
  kWarmup,         // rose at the start, level since
  kStep,           // one or few level changes
  kBounded,        // filled up, or slowing
  kReclaimed,      // rose and came back (garbage collection, length-sorted epochs)
  kRisingInRange,  // rising, below a level that the run already held
};
const char* StateName(State state);

// What a series is when it is not simply its pool's own figure.
enum class Figure { kPool, kDriver /* of the whole device */, kNameless, kRunningPeak };

// The gap between what an allocator reserved and what was ever used of it.
struct GapFigures {
  double reserved = 0, peak = 0, gap = 0, growth = 0, growth_per_step = 0;
  int rises = 0;
};

// What is known of one pool of one rank.
struct Judgement {
  std::string pool;
  int rank = 0;
  Figure figure = Figure::kPool;
  Kind kind = Kind::kInsufficient;
  State state = State::kTooShort;
  bool watch = false, alarm = false;
  double confidence = 0;  // that the verdict is right, 0..1

  std::optional<double> bytes_per_step;
  std::optional<std::pair<double, double>> interval;  // 95 %
  std::optional<double> onset_step;
  std::optional<series::Phase> phase;
  bool from_ledger = false;  // decided by births that never die, not by statistics of totals
  std::optional<double> steps_to_oom, seconds_to_oom;
  std::optional<double> steps_needed;    // more steps until this can be decided
  std::optional<double> no_leak_above;   // B/step: any steady leak is smaller
  std::optional<double> cache_at_least;  // bytes: if this is a cache, it fills to more than this

  uint64_t steps_seen = 0, readings = 0;
  double first_step = 0, last_step = 0;
  double floor = 0, level = 0, peak = 0;  // lower edge at the start, now; the most ever
  double grown = 0;                       // level - floor over what was judged
  std::optional<double> capacity;
  std::optional<double> step_change_at, step_change_bytes;
  std::optional<GapFigures> gap;
  uint64_t restarts = 0;
  std::vector<int> only_ranks;  // leak on these ranks and not on the others
  int ranks = 1;
  bool recorded = false;        // of a process that lowtide recorded, not of figures that were read
  std::string note, note_zh;    // one more sentence of the reason
};

// One sentence with numbers: why this verdict.
std::string Reason(const Judgement& judgement);
std::string ReasonZh(const Judgement& judgement);
// What to do next, by verdict and pool.
std::string Help(const Judgement& judgement);
std::string HelpZh(const Judgement& judgement);

finding::VerdictRow ToRow(const Judgement& judgement);
// What to tell the user: LT201 leak, LT202 capacity, LT203 fragmentation, LT204 bounded growth, LT205 step
// change, LT206 leak in validation, epochs or checkpoints only, LT207 leak outside the allocator, LT208 leak
// on some ranks only, LT209 watch: growth not yet decided. Nothing for a healthy pool.
std::optional<finding::Finding> ToFinding(const Judgement& judgement);

}  // namespace lowtide::verdict
