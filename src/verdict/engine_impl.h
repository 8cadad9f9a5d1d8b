#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "series/blocks.h"
#include "verdict/even.h"
#include "verdict/engine.h"
#include "verdict/gap.h"
#include "verdict/growth.h"
#include "verdict/marks.h"

// Inside the engine: shared by its two halves, what readings do to it (engine.cc) and what it says
// (engine_judge.cc).
namespace lowtide::verdict {

using series::Block;
using series::Point;
using series::Sample;

inline constexpr double kAlpha = 1e-3;  // of each test over an unbounded run, see LevelBudget and LookBudget
inline constexpr double kWarmSteps = 200;    // skipped by the pyramid
inline constexpr size_t kRaw = 256;          // samples kept as they are until the period is known
inline constexpr size_t kEvaluateEvery = 8;  // blocks of a level
inline constexpr uint64_t kFirstLook = 64;   // samples
inline constexpr int kLevelAfter = 3;        // readings after a change of level before the new one is called level
// Bayes factors (as BIC differences) of growth that slows down against growth that goes on, over the whole
// run: up to the first a leak is a leak, beyond the second the suspicion is withdrawn.
inline constexpr double kSlowLead = -2, kWithdrawLead = 4;
inline constexpr double kAlarmAges = 5;      // out of memory within this many times the steps already seen
inline constexpr double kAlarmGrowth = 0.2;  // of the floor, with no limit known

inline double LevelBudget(size_t level, double i, int ranks) {
  return 0.75 * kAlpha / ranks * std::pow(2.0, -static_cast<double>(level) - 1) / (2 * i * (i + 1));
}
inline double LookBudget(double k, int ranks) { return 0.25 * kAlpha / ranks / (k * (k + 1)); }

// A leak must have brought this much before it is called one: pools whose figures drift in healthy programs
// need more.
inline double MinGrowthOf(const std::string& pool, double quantum) {
  if (pool.starts_with("heap") || pool.starts_with("python")) return 512 << 10;
  if (pool.starts_with("host")) return 48 << 20;
  if (pool.starts_with("workers")) return 8 << 20;
  if (pool.starts_with("fds")) return 16;
  if (pool.starts_with("shm")) return 64 << 10;
  if (pool.starts_with("device-other")) return 4 * quantum;
  return 8 * quantum;
}

// What the growth tests have concluded so far.
struct Growth {
  bool suspect = false, leak = false;
  State ended = State::kSteady;        // kReclaimed or kBounded when a suspicion was withdrawn
  double since = 0, window_start = 0;  // of the first candidate
  double last_candidate = 0, window_length = 0, alarm_length = 0;
  double start = 0, top = 0;  // lower edge over the alarm window
  double z = 0, z_critical = 0, bic_lead = 0;
  Shape shape = Shape::kNone;
  Gate gate = Gate::kNone;  // that held back the last window which chance cannot explain
  Rate rate;
};

class Engine::Impl {
 public:
  explicit Impl(EngineOptions options) : options_(std::move(options)) {
    quantum_ = options_.quantum.value_or(series::QuantumOf(options_.pool));
    floor_ = std::max(quantum_, 1e-9) / std::sqrt(12.0);
    min_growth_ = options_.min_growth.value_or(MinGrowthOf(options_.pool, quantum_));
  }

  void Add(const Point& p);
  void AddMark(series::Phase phase) { marks_.AddMark(phase); }
  void SetLedger(std::span<const LedgerRow> rows) { ledger_.Look(last_step_, rows); }
  void AddCollection(double freed) { collected_ = std::max(collected_, freed); }
  Judgement Judge(bool final) const;
  uint64_t samples() const { return samples_; }
  size_t MemoryUsed() const {
    return sizeof(*this) + raw_.capacity() * sizeof(Sample) + base_.capacity() * sizeof(Sample) +
           pyramid_.levels() * sizeof(series::BlockRing) + 2 * series::WholeRun::kHalf * sizeof(Block);
  }

 private:
  void Restart();
  void AddSample(const Sample& s);
  void AddBase(const Block& block);
  void Evaluate(size_t level);
  void CheckWithdrawal();
  void Note(Growth& growth, std::span<const Block> blocks, const WindowAnswer& answer) const;
  void Look(Growth& growth, double budget, bool short_rule) const;
  std::vector<Block> WholeBlocks() const;
  std::vector<Block> RawBlocks() const;
  void FillFigures(Judgement& j) const;
  void Classify(Judgement& j, const Growth& growth, bool final) const;
  void ApplyLedger(Judgement& j) const;
  bool ApplyEvenRises(Judgement& j, bool none_lives_on) const;
  void FillLeak(Judgement& j) const;

  EngineOptions options_;
  double quantum_, floor_, min_growth_;
  // The run so far.
  uint64_t samples_ = 0, restarts_ = 0;
  double first_step_ = 0, last_step_ = 0, first_time_ = Point::kUnknown, last_time_ = Point::kUnknown;
  double peak_ = 0, running_peak_ = 0, last_value_ = 0;
  bool has_peak_ = true;
  double collected_ = 0;
  // The series.
  std::vector<Sample> raw_;   // the first kRaw samples, as they were
  std::vector<Sample> base_;  // of the base block being filled
  size_t base_length_ = 4;
  series::Pyramid pyramid_;
  series::WholeRun whole_;
  std::array<uint32_t, series::Pyramid::kLevels> evaluations_{};
  std::array<bool, series::Pyramid::kLevels> slowing_{};
  uint64_t next_look_ = kFirstLook, looks_ = 0;
  double reclaimed_ = -1e300;  // up to here is no news
  Growth growth_;
  size_t alarm_level_ = 0;
  Marks marks_;
  Ledger ledger_;
  GapWatch gap_;
  EvenRises even_;
  std::optional<Judgement> before_restart_;
};

}  // namespace lowtide::verdict
