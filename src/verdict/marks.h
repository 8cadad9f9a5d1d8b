#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "series/point.h"

namespace lowtide::verdict {

// Which phase a leak belongs to: the growth across marks (validation, epoch, checkpoint) against all growth.
class Marks {
 public:
  void AddMark(series::Phase phase);
  void AddPoint(double step, double value);
  // The phase whose events hold the growth, kStep when they do not, nullopt when that cannot be told. Needs
  // six events of a phase, of which the first does not count (it allocates buffers).
  std::optional<series::Phase> Blame(double bytes_per_step) const;

 private:
  static constexpr size_t kKept = 64, kPhases = 5;
  struct Event {
    double step = 0, before = 0, jump = 0;
  };
  struct Kept {
    std::array<Event, kKept> events;
    uint64_t count = 0;
    bool pending = false;
  };
  std::array<Kept, kPhases> kinds_;
  double last_value_ = 0, last_step_ = 0;
  uint64_t points_ = 0;
};

}  // namespace lowtide::verdict
