#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace lowtide::verdict {

// Growth by the same amount again and again, without a fall: what a tensor does that is made anew from itself
// and new rows, `seen = torch.cat([seen, rows])`. Its old block dies with each new one, so no birth survives,
// and the peak rises by both blocks, as with a workload that grows; but workloads do not grow by the same
// bytes every time.
class EvenRises {
 public:
  // The pool at a step's end (bytes), the peak within the step (may be NaN).
  void Add(double step, double value, double peak) {
    if (samples_++ >= kStart) {
      double change = value - last_value_, rise = change / std::max(1.0, step - last_step_);
      bool even = change > 0 && (change == last_change_ || rise == last_rise_);
      steps_ = steps_ << 1 | static_cast<uint64_t>(even);
      if (change != 0) {
        changes_ = changes_ << 1 | static_cast<uint64_t>(even);
        const bool other = even_ > 0 && change != from_change_ && rise != from_rise_;  // by another amount from now on
        if (even && (even_++ == 0 || other)) {
          from_step_ = last_step_, from_value_ = last_value_, from_peak_ = peak, from_change_ = change, from_rise_ = rise;
        }
        if (change < 0) even_ = 0, ceiling_ = std::max(ceiling_, last_value_);
        spacing_ = step - changed_at_;
        changed_at_ = step, last_change_ = change, last_rise_ = rise;
      }
    }
    last_step_ = step, last_value_ = value, last_peak_ = peak;
  }

  // Bytes per step while it goes on, else 0.
  double Rate() const {
    if (!Goes()) return 0;
    return (last_value_ - from_value_) / std::max(1.0, last_step_ - from_step_);
  }
  double grown() const { return last_value_ - from_value_; }
  double from_step() const { return from_step_; }

 private:
  static constexpr uint64_t kStart = 8;  // samples of the start-up

  bool Goes() const {
    // What was given back before, as a decoder's cache after each text, has half its rise beyond where it has been.
    if (ceiling_ > 0 && last_value_ - ceiling_ < 0.5 * (last_value_ - from_value_)) return false;
    if (std::popcount(steps_) >= 58 && even_ >= 58) return true;
    // Rarer rises (validations) are also what a curriculum of lengths does; there the peak rises much more.
    constexpr uint64_t kLast = (1u << 10) - 1;
    bool regular = even_ >= 10 && (changes_ & kLast) == kLast && last_step_ - changed_at_ <= 1.5 * spacing_;
    return regular && last_peak_ - from_peak_ <= 2.6 * (last_value_ - from_value_);
  }

  uint64_t samples_ = 0, even_ = 0;
  uint64_t steps_ = 0, changes_ = 0;  // the last 64 samples and changes: a rise like the one before?
  double last_step_ = 0, last_value_ = 0, last_peak_ = 0, last_change_ = 0, last_rise_ = 0;
  double changed_at_ = 0, spacing_ = 0, from_step_ = 0, from_value_ = 0, from_peak_ = 0;
  double from_change_ = 0, from_rise_ = 0;
  double ceiling_ = 0;  // the highest value before a fall
};

}  // namespace lowtide::verdict
