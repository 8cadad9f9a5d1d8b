#include "verdict/engine_impl.h"

namespace lowtide::verdict {

Judgement Engine::Impl::Judge(bool final) const {
  Judgement j;
  FillFigures(j);
  Growth growth = growth_;
  if (samples_ >= kFirstLook)
    Look(growth, LookBudget(static_cast<double>(looks_ + 1), options_.ranks), false);
  else if (final && samples_ >= 8)
    Look(growth, 1e-3 / options_.ranks, true);
  Classify(j, growth, final);
  ApplyLedger(j);
  FillLeak(j);
  return j;
}

void Engine::Impl::FillFigures(Judgement& j) const {
  j.pool = options_.pool, j.rank = options_.rank, j.ranks = options_.ranks, j.figure = options_.figure,
  j.capacity = options_.capacity;
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
    j.steps_needed = std::max(
        1.0,
        (kFirstLook - static_cast<double>(samples_)) *
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
  if (g.leak && j.grown >= min_growth_ / 2) {  // certain, and soon enough to matter
    j.kind = Kind::kInsufficient, j.state = State::kSuspect, j.confidence = 0.5;
    j.steps_needed = std::max(1.0, (min_growth_ - j.grown) / std::max(g.rate.value, 1e-9));
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
    if (std::count_if(x.begin(), x.end(), [&](double at) { return at > shape.bounded.at; }) < kLevelAfter) {
      j.kind = Kind::kInsufficient, j.state = State::kTooShort, j.confidence = 0.5, j.steps_needed = 64;
    } else {
      j.kind = Kind::kStepChange, j.state = State::kStep;
      j.step_change_at = shape.bounded.at, j.step_change_bytes = shape.bounded.height;
    }
  } else {
    j.kind = Kind::kHealthy, j.state = State::kSteady;
  }
  if (samples_ < 24 || (!final && samples_ < kFirstLook)) {
    j.kind = Kind::kInsufficient, j.state = State::kTooShort, j.confidence = 0.5;
    j.steps_needed = 64;
  }
  if (j.kind == Kind::kInsufficient) return;
  if (auto fragmented = gap_.Fragmented())
    j.kind = Kind::kFragmentation, j.gap = fragmented;
  else if (options_.capacity && peak_ > 0.95 * *options_.capacity)
    j.kind = Kind::kCapacity;
}

void Engine::Impl::ApplyLedger(Judgement& j) const {
  if (ledger_.empty()) return;
  std::optional<double> upper;
  auto blocks = WholeBlocks();
  if (blocks.size() >= 16) {
    std::vector<double> x, y;
    for (size_t i = blocks.size() / 2; i < blocks.size(); ++i)
      x.push_back(blocks[i].Middle()), y.push_back(blocks[i].low);
    auto slope = series::SlopeOf(x, y, floor_);
    upper = slope.value + 3 * slope.error;
  }
  auto l = ledger_.Decide(first_step_, upper);
  bool lives_on = l.kind == LedgerVerdict::kLeak || l.survivors > 0.2 * even_.grown();
  if (!lives_on && ApplyEvenRises(j, l.kind != LedgerVerdict::kUndecided)) return;
  if (l.kind == LedgerVerdict::kUndecided) return;
  j.from_ledger = true;
  if (l.kind == LedgerVerdict::kLeak && l.survivors >= min_growth_) {
    j.kind = Kind::kLeak, j.state = State::kLeak, j.watch = true, j.confidence = 0.999;
    j.bytes_per_step = l.bytes_per_step, j.interval = {l.low, l.high}, j.onset_step = l.onset,
    j.phase = l.phase;
    j.grown = std::max(j.grown, l.survivors);
    return;
  }
  bool was_leak = j.kind == Kind::kLeak || j.state == State::kSuspect;
  if (!was_leak) return;
  j.watch = j.alarm = false;
  j.kind = l.kind == LedgerVerdict::kNone ? Kind::kHealthy : Kind::kBounded;
  j.state = l.kind == LedgerVerdict::kWarmup ? State::kWarmup
            : l.kind == LedgerVerdict::kNone ? State::kSteady
                                             : State::kBounded;
  j.confidence = 0.98;
  j.steps_needed.reset(), j.bytes_per_step.reset(), j.interval.reset(), j.onset_step.reset();
}

bool Engine::Impl::ApplyEvenRises(Judgement& j, bool none_lives_on) const {
  double rate = even_.Rate();
  if (rate <= 0 || even_.grown() < min_growth_ || !has_peak_) return false;
  j.kind = Kind::kLeak, j.state = State::kLeak, j.watch = true, j.confidence = 0.95;
  j.bytes_per_step = rate, j.interval = {0.99 * rate, 1.01 * rate}, j.onset_step = even_.from_step();
  j.grown = std::max(j.grown, even_.grown());
  j.from_ledger = false;
  if (!none_lives_on) {
    j.note = "It rises by the same amount each time.";
    j.note_zh = "每次增加的量都相同。";
    return true;
  }
  j.note =
      "It rises by the same amount each time while no block lives on: a tensor is made anew from itself and new "
      "rows (torch.cat) and never cut.";
  j.note_zh = "每次增加的量都相同，而没有内存块存活下来：某个张量不断由自身与新行拼接（torch.cat）而成，从未截断。";
  return true;
}

void Engine::Impl::FillLeak(Judgement& j) const {
  if (j.kind == Kind::kLeak && collected_ > 0.5 * j.grown) {
    j.kind = Kind::kBounded, j.state = State::kReclaimed, j.watch = false, j.confidence = 0.95;
    j.bytes_per_step.reset(), j.interval.reset();
  }
  if (j.kind != Kind::kLeak && before_restart_ &&
      (j.kind == Kind::kInsufficient || j.readings < before_restart_->readings)) {
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
    if (std::isfinite(seconds) && seconds > 0 && steps > 0)
      j.seconds_to_oom = *j.steps_to_oom * seconds / steps;
  } else {
    j.alarm = j.grown > kAlarmGrowth * std::max(j.floor, 1.0);
  }
}

}  // namespace lowtide::verdict
