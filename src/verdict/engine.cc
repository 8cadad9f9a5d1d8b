#include "verdict/engine.h"

#include "series/period.h"
#include "verdict/engine_impl.h"

namespace lowtide::verdict {
namespace {

// Readings that come at very different distances (a costly figure is read more rarely as a run goes on):
// blocks of equal counts would give the dense part most of the weight.
bool Uneven(std::span<const Sample> raw) {
  if (raw.size() < 24) return false;
  std::vector<double> gaps;
  for (size_t i = 1; i < raw.size(); ++i) gaps.push_back(raw[i].step - raw[i - 1].step);
  double typical = series::MedianOf(gaps), far = 0;
  for (double gap : gaps) far += gap > 2.5 * typical ? gap : 0;
  return far > 0.25 * (raw.back().step - raw.front().step);
}

// A distance between readings that is out of the ordinary.
double FarGap(std::span<const Sample> raw) {
  std::vector<double> gaps;
  for (size_t i = 1; i < raw.size(); ++i) gaps.push_back(raw[i].step - raw[i - 1].step);
  return gaps.empty() ? 1e300 : 4 * series::MedianOf(gaps);
}

// Index of the first sample after such a gap, 0 if there is none.
size_t GapIn(std::span<const Sample> samples, double far) {
  for (size_t i = 1; i < samples.size(); ++i)
    if (samples[i].step - samples[i - 1].step > far) return i;
  return 0;
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

void Engine::Impl::Restart() {
  Judgement past = Judge(true);
  if (past.kind == Kind::kLeak && (!before_restart_ || past.readings > before_restart_->readings))
    before_restart_ = past;
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
  even_.Add(step, p.value, p.peak);
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
  if (raw_.size() == kRaw)
    whole_.CopyTo(blocks);
  else if (Uneven(raw_))
    blocks = EqualSpans(raw_);
  else
    blocks = RawBlocks();
  TakeOutTemporary(blocks, floor_);
  return blocks;
}

std::vector<Block> Engine::Impl::RawBlocks() const {
  std::vector<Block> blocks;
  size_t length = raw_.size() <= 128 ? 1 : 2;
  size_t period = series::EstimatePeriod(raw_);
  if (period > 1 && raw_.size() / period >= 12) length = std::max(length, period <= 4 ? size_t{4} : period);
  // A block that reaches over a gap in the readings would show a level too low for its middle.
  double far = length <= 2 ? FarGap(raw_) : 1e300;
  for (size_t i = 0; i + length <= raw_.size();) {
    auto samples = std::span(raw_).subspan(i, length);
    size_t gap = far < 1e300 ? GapIn(samples, far) : 0;
    if (gap == 0) blocks.push_back(series::MakeBlock(samples));
    i += gap ? gap : length;
  }
  return blocks;
}

void Engine::Impl::Evaluate(size_t level) {
  auto& ring = pyramid_.level(level);
  std::vector<Block> blocks;
  ring.CopyTo(blocks);
  WindowQuestion q;
  q.level = LevelBudget(level, ++evaluations_[level], options_.ranks);
  q.noise_floor = floor_, q.history_max = std::max(ring.history_max(), reclaimed_), q.has_peak = has_peak_,
  q.origin = first_step_;
  auto answer = TestWindow(blocks, q);
  if (answer.shaped) slowing_[level] = answer.shape.slowing();
  bool coarser_slows = false;
  for (size_t l = level; l < pyramid_.levels(); ++l)
    coarser_slows = coarser_slows || (slowing_[l] && l > level);
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

// A window passed everything. The first one raises the suspicion; one that is half as long again makes it a
// leak.
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
    g.z = a.z, g.z_critical = a.z_critical, g.bic_lead = a.shape.bounded.bic - a.shape.growing.bic,
    g.shape = a.shape.growing.shape;
  }
  if (options_.running_maximum) return;
  bool lasted = a.last - g.window_start >= 1.5 * (g.since - g.window_start);
  bool urgent =
      options_.capacity && a.slope.value > 0 && (*options_.capacity - running_peak_) / a.slope.value < length;
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
    // Twice the height of this tooth is what its successors may reach: collections grow rarer as a program
    // grows.
    double ceiling = growth_.start + 2 * (growth_.top - growth_.start);
    for (size_t l = 0; l <= alarm_level_; ++l) pyramid_.level(l).RaiseHistoryMax(ceiling);
    growth_.suspect = growth_.leak = false;
    growth_.ended = State::kReclaimed;
    return;
  }
  if (blocks.back().last - growth_.last_candidate <
      std::max(0.5 * growth_.alarm_length, 16 * (blocks[1].first - blocks[0].first)))
    return;
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
  if (answer.shape.SlowLead() > kWithdrawLead)
    g.suspect = g.leak = false, g.ended = State::kBounded;
  else if (answer.shape.SlowLead() > kSlowLead)
    g.leak = false;
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
