#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "series/point.h"

namespace lowtide::verdict {

// What is still alive of the blocks born in steps first..last (inclusive) of one phase.
struct LedgerRow {
  uint64_t first_birth_step = 0, last_birth_step = 0;
  series::Phase phase = series::Phase::kStep;
  double bytes_alive = 0, blocks_alive = 0;
};

// What births say. A leak is births that never die.
struct LedgerVerdict {
  enum Kind { kUndecided, kNone, kLeak, kBounded, kWarmup } kind = kUndecided;
  double bytes_per_step = 0, low = 0, high = 0;
  double onset = 0;      // first birth step that survives
  double survivors = 0;  // bytes alive of births since the onset
  double old_share = 0;  // survival of old births against young ones, 0..1
  std::optional<series::Phase> phase;
};

// Looks at the ledger while the run goes on; keeps at most kLooks of them, spread over the run, each of at
// most kRows rows.
class Ledger {
 public:
  static constexpr size_t kLooks = 3, kRows = 256;

  // `step` is the step of the look; rows in any order.
  void Look(double step, std::span<const LedgerRow> rows);
  bool empty() const { return looks_.empty(); }
  // Decides from the newest look and the older ones. `growth_since`: bytes per step by which the pool's total
  // grew over the second half of the run (its upper bound), nullopt when unknown; births can only leak as
  // fast as the total grows.
  LedgerVerdict Decide(double first_step, std::optional<double> growth_upper) const;

 private:
  struct Snapshot {
    double step = 0;
    std::vector<LedgerRow> rows;
  };
  std::vector<Snapshot> looks_;  // oldest first
};

}  // namespace lowtide::verdict
