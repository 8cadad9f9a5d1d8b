#include "verdict/engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "series/blocks.h"
#include "series/period.h"
#include "verdict/gap.h"
#include "verdict/marks.h"
#include "verdict/growth.h"

namespace lowtide::verdict {

using series::Block;
using series::Point;
using series::Sample;

namespace {

constexpr double kAlpha = 1e-3;        // of each test over an unbounded run, see LevelBudget and LookBudget
constexpr double kWarmSteps = 200;     // skipped by the pyramid
constexpr size_t kRaw = 256;           // samples kept as they are until the period is known
constexpr size_t kEvaluateEvery = 8;   // blocks of a level
constexpr uint64_t kFirstLook = 64;    // samples
// Bayes factors (as BIC differences) of growth that slows down against growth that goes on, over the whole run: up to
// the first a leak is a leak, beyond the second the suspicion is withdrawn.
constexpr double kSlowLead = -2, kWithdrawLead = 4;
constexpr double kAlarmAges = 5;       // out of memory within this many times the steps already seen
constexpr double kAlarmGrowth = 0.2;   // of the floor, with no limit known

double LevelBudget(size_t level, double i, int ranks) {
  return 0.75 * kAlpha / ranks * std::pow(2.0, -static_cast<double>(level) - 1) / (2 * i * (i + 1));
}
double LookBudget(double k, int ranks) { return 0.25 * kAlpha / ranks / (k * (k + 1)); }

// A leak must have brought this much before it is called one: pools whose figures drift in healthy programs need more.
double MinGrowthOf(const std::string& pool, double quantum) {
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
  State ended = State::kSteady;      // kReclaimed or kBounded when a suspicion was withdrawn
  double since = 0, window_start = 0;  // of the first candidate
  double last_candidate = 0, window_length = 0, alarm_length = 0;
  double start = 0, top = 0;         // lower edge over the alarm window
  double z = 0, z_critical = 0, bic_lead = 0;
  Shape shape = Shape::kNone;
  Gate gate = Gate::kNone;           // that held back the last window which chance cannot explain
  Rate rate;
};

// Readings that come at very different distances (a costly figure is read more rarely as a run goes on): blocks of equal
// counts would give the dense part most of the weight.
bool Uneven(std::span<const Sample> raw) {
  if (raw.size() < 24) return false;
  std::vector<double> gaps;
  for (size_t i = 1; i < raw.size(); ++i) gaps.push_back(raw[i].step - raw[i - 1].step);
  double typical = series::MedianOf(gaps), far = 0;
  for (double gap : gaps) far += gap > 2.5 * typical ? gap : 0;
  return far > 0.25 * (raw.back().step - raw.front().step);
}

// One block per equal span of steps that has a reading.
std::vector<Block> EqualSpans(std::span<const Sample> raw) {
  constexpr size_t kSpans = 64;
  std::vector<Block> blocks;
  double width = (raw.back().step - raw.front().step + 1) / kSpans;
  for (size_t from = 0; from < raw.size();) {
    double end = (std::floor((raw[from].step - raw.front().step) / width) + 1) * width + raw.front().step;
    size_t to = from + 1;
    while (to < raw.size() && raw[to].step < end && to - from < series::kMaxSamples) ++to;
    blocks.push_back(series::MakeBlock(raw.subspan(from, to - from)));
    from = to;
  }
  return blocks;
}

}  // namespace

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
  std::optional<Judgement> before_restart_;
};

void Engine::Impl::Restart() {
  Judgement past = Judge(true);
  if (past.kind == Kind::kLeak && (!before_restart_ || past.readings > before_restart_->readings)) before_restart_ = past;
  Impl fresh(options_);
  fresh.restarts_ = restarts_ + 1;
  fresh.before_restart_ = before_restart_;
  *this = std::move(fresh);
}

void Engine::Impl::Add(const Point& p) {
  if (!std::isfinite(p.value)) return;
  double step = static_cast<double>(p.step);
  if (samples_ && step == last_step_) return;
  if (samples_ && step < last_step_) Restart();
  if (samples_++ == 0) first_step_ = step, first_time_ = p.time_s, has_peak_ = std::isfinite(p.peak);
  has_peak_ = has_peak_ && std::isfinite(p.peak);
  last_step_ = step, last_time_ = p.time_s, last_value_ = p.value;
  double used = std::isfinite(p.peak) ? std::max(p.peak, p.value) : p.value;
  peak_ = std::max(peak_, used);
  running_peak_ = std::max(used, running_peak_ * 0.999);
  gap_.Add(step, p.reserved, used);
  marks_.AddPoint(step, p.value);
  if (p.phase == series::Phase::kValidation || p.phase == series::Phase::kCheckpoint) return;
  AddSample({step, p.value, used});
  if (samples_ < next_look_) return;
  next_look_ = samples_ + samples_ / 8;
  Look(growth_, LookBudget(static_cast<double>(++looks_), options_.ranks), false);
  reclaimed_ = ReclaimedCeiling(WholeBlocks(), floor_);
}

void Engine::Impl::AddSample(const Sample& s) {
  if (raw_.size() < kRaw) {
    raw_.push_back(s);
    if (raw_.size() < kRaw) return;
    base_length_ = series::BaseBlockLength(series::EstimatePeriod(raw_));
    for (auto& sample : raw_) {
      base_.push_back(sample);
      if (base_.size() == base_length_) AddBase(series::MakeBlock(base_)), base_.clear();
    }
    return;
  }
  base_.push_back(s);
  if (base_.size() < base_length_) return;
  AddBase(series::MakeBlock(base_));
  base_.clear();
}

void Engine::Impl::AddBase(const Block& block) {
  whole_.Add(block);
  if (block.first - first_step_ < kWarmSteps) return;
  size_t levels = pyramid_.Add(block);
  for (size_t l = 0; l < levels; ++l) {
    auto& ring = pyramid_.level(l);
    // Once a leak is known, only its end is news.
    size_t every = growth_.leak ? 4 * kEvaluateEvery : kEvaluateEvery;
    if (ring.size() >= 16 && ring.added() % every == 0) Evaluate(l);
  }
}

// The whole run in 64..128 blocks; before the period is known, from the samples themselves.
std::vector<Block> Engine::Impl::WholeBlocks() const {
  std::vector<Block> blocks;
  if (raw_.size() == kRaw) whole_.CopyTo(blocks);
  else if (Uneven(raw_)) blocks = EqualSpans(raw_);
  else blocks = RawBlocks();
  TakeOutTemporary(blocks, floor_);
  return blocks;
}

std::vector<Block> Engine::Impl::RawBlocks() const {
  std::vector<Block> blocks;
  size_t length = raw_.size() <= 128 ? 1 : 2;
  size_t period = series::EstimatePeriod(raw_);
  if (period > 1 && raw_.size() / period >= 12) length = std::max(length, period <= 4 ? size_t{4} : period);
  for (size_t i = 0; i + length <= raw_.size(); i += length) blocks.push_back(series::MakeBlock(std::span(raw_).subspan(i, length)));
  return blocks;
}

void Engine::Impl::Evaluate(size_t level) {
  auto& ring = pyramid_.level(level);
  std::vector<Block> blocks;
  ring.CopyTo(blocks);
  WindowQuestion q;
  q.level = LevelBudget(level, ++evaluations_[level], options_.ranks);
  q.noise_floor = floor_, q.history_max = std::max(ring.history_max(), reclaimed_), q.has_peak = has_peak_, q.origin = first_step_;
  auto answer = TestWindow(blocks, q);
  if (answer.shaped) slowing_[level] = answer.shape.slowing();
  bool coarser_slows = false;
  for (size_t l = level; l < pyramid_.levels(); ++l) coarser_slows = coarser_slows || (slowing_[l] && l > level);
  if (answer.candidate && !coarser_slows) {
    bool first = !growth_.suspect;
    Note(growth_, blocks, answer);
    if (first || level > alarm_level_) alarm_level_ = level;
  } else if (answer.watch) {
    growth_.gate = answer.candidate ? Gate::kShape : answer.gate;
  }
  if (growth_.suspect && level >= alarm_level_ && slowing_[level]) {
    growth_.suspect = growth_.leak = false;
    growth_.ended = State::kBounded;
  }
  CheckWithdrawal();
}

// A window passed everything. The first one raises the suspicion; one that is half as long again makes it a leak.
void Engine::Impl::Note(Growth& g, std::span<const Block> blocks, const WindowAnswer& a) const {
  if (!g.suspect) {
    g = Growth{};
    g.suspect = true;
    g.since = a.last, g.window_start = a.first, g.alarm_length = a.last - a.first, g.start = a.start;
  }
  g.last_candidate = a.last;
  g.start = std::min(g.start, a.start), g.top = std::max(g.top, a.top);
  double length = a.last - a.first;
  if (length >= g.window_length * 0.9) {
    g.window_length = length;
    g.rate = EstimateRate(blocks, a, floor_);
    g.z = a.z, g.z_critical = a.z_critical, g.bic_lead = a.shape.bounded.bic - a.shape.growing.bic, g.shape = a.shape.growing.shape;
  }
  if (options_.running_maximum) return;
  bool lasted = a.last - g.window_start >= 1.5 * (g.since - g.window_start);
  bool urgent = options_.capacity && a.slope.value > 0 && (*options_.capacity - running_peak_) / a.slope.value < length;
  if (lasted || (urgent && a.last - first_step_ > kWarmSteps)) g.leak = true;
}

void Engine::Impl::CheckWithdrawal() {
  if (!growth_.suspect || alarm_level_ >= pyramid_.levels()) return;
  std::vector<Block> blocks;
  pyramid_.level(alarm_level_).CopyTo(blocks);
  if (blocks.size() < 16) return;
  // Means of 4 blocks: how far did it come down from its highest?
  double highest = -1e300, lowest_after = 1e300, jump = 0;
  for (size_t i = 0; i + 1 < blocks.size(); ++i) jump = std::max(jump, blocks[i + 1].low - blocks[i].low);
  for (size_t i = 0; i + 4 <= blocks.size(); ++i) {
    double mean = (blocks[i].low + blocks[i + 1].low + blocks[i + 2].low + blocks[i + 3].low) / 4;
    if (mean > highest) highest = lowest_after = mean;
    lowest_after = std::min(lowest_after, mean);
  }
  if (lowest_after < growth_.start + 0.3 * (growth_.top - growth_.start) && growth_.top > growth_.start &&
      jump < 0.6 * (highest - growth_.start)) {
    // Twice the height of this tooth is what its successors may reach: collections grow rarer as a program grows.
    double ceiling = growth_.start + 2 * (growth_.top - growth_.start);
    for (size_t l = 0; l <= alarm_level_; ++l) pyramid_.level(l).RaiseHistoryMax(ceiling);
    growth_.suspect = growth_.leak = false;
    growth_.ended = State::kReclaimed;
    return;
  }
  if (blocks.back().last - growth_.last_candidate < std::max(0.5 * growth_.alarm_length, 16 * (blocks[1].first - blocks[0].first))) return;
  std::vector<double> x, y;
  for (auto& b : blocks)
    if (b.first >= growth_.last_candidate) x.push_back(b.Middle()), y.push_back(b.low);
  if (x.size() < 16) return;
  auto slope = series::SlopeOf(x, y, floor_);
  if (slope.value + 3 * slope.error >= 0.25 * growth_.rate.value) return;
  growth_.suspect = growth_.leak = false;
  growth_.ended = State::kBounded;
}

// The whole run at once: what the pyramid's windows cannot see yet, or see only in parts.
void Engine::Impl::Look(Growth& g, double budget, bool short_rule) const {
  auto blocks = WholeBlocks();
  size_t drop = std::min<size_t>(blocks.size() / 5, std::max<size_t>(2, blocks.size()));
  size_t warm = 0;
  while (warm < drop && blocks[warm].first - first_step_ < kWarmSteps) ++warm;
  std::span<const Block> window(blocks.begin() + static_cast<long>(warm), blocks.end());
  WindowQuestion q;
  q.level = budget, q.noise_floor = floor_, q.whole = true, q.has_peak = has_peak_, q.origin = first_step_;
  q.history_max = ReclaimedCeiling(blocks, floor_);
  auto answer = TestWindow(window, q, !g.suspect);
  if (g.suspect && answer.shaped && answer.top < q.history_max) {
    g.suspect = g.leak = false, g.ended = State::kReclaimed;
    return;
  }
  if (answer.candidate && answer.shape.SlowLead() < kSlowLead) {
    Note(g, window, answer);
    // A running peak only rises, and by records ever more rarely: only a steady rise is more than that.
    if (options_.running_maximum && answer.shape.SlowLead() > -20) return;
    if (short_rule || Lasted(window, q, answer)) g.leak = true;
  } else if (answer.watch) {
    g.gate = answer.candidate ? Gate::kShape : answer.gate;
  }
  if (!g.suspect || !answer.shaped) return;
  if (answer.shape.SlowLead() > kWithdrawLead) g.suspect = g.leak = false, g.ended = State::kBounded;
  else if (answer.shape.SlowLead() > kSlowLead) g.leak = false;
}

Judgement Engine::Impl::Judge(bool final) const {
  Judgement j;
  FillFigures(j);
  Growth growth = growth_;
  if (samples_ >= kFirstLook) Look(growth, LookBudget(static_cast<double>(looks_ + 1), options_.ranks), false);
  else if (final && samples_ >= 8) Look(growth, 1e-3 / options_.ranks, true);
  Classify(j, growth, final);
  ApplyLedger(j);
  FillLeak(j);
  return j;
}

void Engine::Impl::FillFigures(Judgement& j) const {
  j.pool = options_.pool, j.rank = options_.rank, j.ranks = options_.ranks, j.figure = options_.figure, j.capacity = options_.capacity;
  j.readings = samples_, j.restarts = restarts_;
  j.first_step = first_step_, j.last_step = last_step_;
  j.steps_seen = samples_ ? static_cast<uint64_t>(last_step_ - first_step_ + 1) : 0;
  j.peak = peak_, j.level = last_value_, j.floor = last_value_;
}

void Engine::Impl::Classify(Judgement& j, const Growth& g, bool final) const {
  j.watch = g.suspect;
  auto blocks = WholeBlocks();
  if (!blocks.empty()) j.floor = blocks[std::min<size_t>(2, blocks.size() - 1)].low;
  if (samples_ < 8 || blocks.size() < 8) {
    j.kind = Kind::kInsufficient, j.state = State::kTooShort, j.confidence = 0;
    j.steps_needed = std::max(1.0, (kFirstLook - static_cast<double>(samples_)) *
                                       std::max(1.0, samples_ > 1 ? (last_step_ - first_step_) / static_cast<double>(samples_ - 1) : 1));
    return;
  }
  double chance = std::max(1e-4, series::UpperNormalTail(g.z));
  if (g.suspect) {
    j.bytes_per_step = g.rate.value, j.interval = {g.rate.low, g.rate.high}, j.onset_step = g.rate.onset;
    j.grown = g.top - g.start, j.floor = g.start;
  }
  if (g.leak && j.grown >= min_growth_) {
    j.kind = Kind::kLeak, j.state = State::kLeak;
    j.confidence = (1 - chance) / (1 + std::exp(-g.bic_lead / 2)) * 0.995;
    return;
  }
  if (g.suspect && !g.leak) {
    j.kind = Kind::kInsufficient, j.state = State::kSuspect;
    j.confidence = 0.5;
    j.steps_needed = std::max(1.0, 1.5 * (g.since - g.window_start) - (last_step_ - g.window_start));
    return;
  }
  if (g.leak) {  // certain, but too little to matter
    j.kind = Kind::kHealthy, j.state = State::kSteady, j.watch = false, j.confidence = 0.9;
    return;
  }
  size_t warm = 0;
  while (warm < blocks.size() / 5 && blocks[warm].first - first_step_ < kWarmSteps) ++warm;
  std::vector<double> x, y;
  for (size_t i = warm; i < blocks.size(); ++i) x.push_back(blocks[i].Middle()), y.push_back(blocks[i].low);
  auto slope = series::SlopeOf(x, y, floor_);
  j.no_leak_above = std::max(0.0, slope.value) + 3 * slope.error;
  auto shape = FitShapes(x, y, floor_, 4, std::min(first_step_, x.front()));
  j.confidence = 0.95;
  if (g.ended == State::kReclaimed || g.ended == State::kBounded) {
    j.kind = Kind::kBounded, j.state = g.ended;
  } else if (g.gate == Gate::kOldTerritory) {
    j.kind = Kind::kHealthy, j.state = State::kRisingInRange, j.confidence = 0.8;
  } else if (shape.bounded.bic <= shape.growing.bic && IsSlowing(shape.bounded.shape)) {
    j.kind = Kind::kBounded, j.state = State::kBounded;
  } else if (shape.bounded.bic <= shape.growing.bic && shape.bounded.shape == Shape::kShifts &&
             std::abs(shape.bounded.height) > 3 * slope.sigma) {
    j.kind = Kind::kStepChange, j.state = State::kStep;
    j.step_change_at = shape.bounded.at, j.step_change_bytes = shape.bounded.height;
  } else {
    j.kind = Kind::kHealthy, j.state = State::kSteady;
  }
  if (samples_ < 24 || (!final && samples_ < kFirstLook)) {
    j.kind = Kind::kInsufficient, j.state = State::kTooShort, j.confidence = 0.5;
    j.steps_needed = 64;
  }
  if (j.kind == Kind::kInsufficient) return;
  if (auto fragmented = gap_.Fragmented()) j.kind = Kind::kFragmentation, j.gap = fragmented;
  else if (options_.capacity && peak_ > 0.95 * *options_.capacity) j.kind = Kind::kCapacity;
}

void Engine::Impl::ApplyLedger(Judgement& j) const {
  if (ledger_.empty()) return;
  std::optional<double> upper;
  auto blocks = WholeBlocks();
  if (blocks.size() >= 16) {
    std::vector<double> x, y;
    for (size_t i = blocks.size() / 2; i < blocks.size(); ++i) x.push_back(blocks[i].Middle()), y.push_back(blocks[i].low);
    auto slope = series::SlopeOf(x, y, floor_);
    upper = slope.value + 3 * slope.error;
  }
  auto l = ledger_.Decide(first_step_, upper);
  if (l.kind == LedgerVerdict::kUndecided) return;
  j.from_ledger = true;
  if (l.kind == LedgerVerdict::kLeak && l.survivors >= min_growth_) {
    j.kind = Kind::kLeak, j.state = State::kLeak, j.watch = true, j.confidence = 0.999;
    j.bytes_per_step = l.bytes_per_step, j.interval = {l.low, l.high}, j.onset_step = l.onset, j.phase = l.phase;
    j.grown = std::max(j.grown, l.survivors);
    return;
  }
  bool was_leak = j.kind == Kind::kLeak || j.state == State::kSuspect;
  if (!was_leak) return;
  j.watch = j.alarm = false;
  j.kind = l.kind == LedgerVerdict::kNone ? Kind::kHealthy : Kind::kBounded;
  j.state = l.kind == LedgerVerdict::kWarmup ? State::kWarmup : l.kind == LedgerVerdict::kNone ? State::kSteady : State::kBounded;
  j.confidence = 0.98;
  j.steps_needed.reset(), j.bytes_per_step.reset(), j.interval.reset(), j.onset_step.reset();
}

void Engine::Impl::FillLeak(Judgement& j) const {
  if (j.kind == Kind::kLeak && collected_ > 0.5 * j.grown) {
    j.kind = Kind::kBounded, j.state = State::kReclaimed, j.watch = false, j.confidence = 0.95;
    j.bytes_per_step.reset(), j.interval.reset();
  }
  if (j.kind != Kind::kLeak && before_restart_ && (j.kind == Kind::kInsufficient || j.readings < before_restart_->readings)) {
    auto figures = j;
    j = *before_restart_;
    j.restarts = figures.restarts;
  }
  if (j.kind != Kind::kLeak || !j.bytes_per_step || *j.bytes_per_step <= 0) return;
  if (!j.phase) j.phase = marks_.Blame(*j.bytes_per_step);
  if (!j.phase) j.phase = series::Phase::kStep;
  double age = j.last_step - std::max(j.first_step, j.onset_step.value_or(j.first_step));
  double slope_low = j.interval ? std::max(j.interval->first, 0.25 * *j.bytes_per_step) : *j.bytes_per_step;
  if (options_.capacity) {
    double headroom = std::max(0.0, *options_.capacity - running_peak_);
    j.steps_to_oom = headroom / *j.bytes_per_step;
    j.alarm = headroom < kAlarmAges * std::max(age, 1.0) * slope_low;
    double seconds = last_time_ - first_time_, steps = last_step_ - first_step_;
    if (std::isfinite(seconds) && seconds > 0 && steps > 0) j.seconds_to_oom = *j.steps_to_oom * seconds / steps;
  } else {
    j.alarm = j.grown > kAlarmGrowth * std::max(j.floor, 1.0);
  }
}

Engine::Engine(EngineOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
void Engine::Add(const Point& point) { impl_->Add(point); }
void Engine::AddMark(series::Phase phase, uint64_t) { impl_->AddMark(phase); }
void Engine::SetLedger(std::span<const LedgerRow> rows) { impl_->SetLedger(rows); }
void Engine::AddCollection(double freed_bytes) { impl_->AddCollection(freed_bytes); }
Judgement Engine::Judge(bool final) const { return impl_->Judge(final); }
uint64_t Engine::samples() const { return impl_->samples(); }
size_t Engine::MemoryUsed() const { return impl_->MemoryUsed(); }

}  // namespace lowtide::verdict
