#pragma once

#include <cstdint>

namespace lowtide::record {

// Bounds what a sampler costs: a credit to begin with, so that short runs are sampled at every step, and after that
// a share of the time that passes.
class Budget {
 public:
  constexpr Budget() = default;
  // `share` parts per million of the time; `credit_ns` to begin with.
  constexpr Budget(int64_t share, int64_t credit_ns) noexcept : share_(share), credit_ns_(credit_ns) {}

  bool Allows(int64_t now_ns) const noexcept { return now_ns >= next_ns_; }
  void Spend(int64_t now_ns, int64_t cost_ns) noexcept {
    credit_ns_ -= cost_ns;
    if (credit_ns_ < 0 && share_ > 0) {
      next_ns_ = now_ns + -credit_ns_ * 1'000'000 / share_;
      credit_ns_ = 0;
    }
  }

 private:
  int64_t share_ = 1000, credit_ns_ = 0, next_ns_ = 0;
};

// The same for every program that is recorded: parts per million of the run's time, and what it may use up at its start.
inline constexpr Budget kHeapBudget(800, 24'000'000), kHostBudget(200, 4'000'000);

}  // namespace lowtide::record
