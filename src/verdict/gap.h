#pragma once

#include <cstdint>
#include <optional>

#include "verdict/judgement.h"

namespace lowtide::verdict {

// Fragmentation of a caching allocator: reserved memory that not even the peak of what is used ever fills,
// growing.
class GapWatch {
 public:
  // `used`: the peak since the last sample where known, else the sample.
  void Add(double step, double reserved, double used);
  // Figures when the gap is at least 10 % of what is reserved and came by many rises; nullopt otherwise.
  std::optional<GapFigures> Fragmented() const;

 private:
  static constexpr size_t kKept = 256;
  struct Reading {
    double step, gap, reserved;
  };
  Reading kept_[kKept];
  size_t size_ = 0, stride_ = 1;
  uint64_t count_ = 0;
  double running_peak_ = 0;
  Reading last_{};
};

}  // namespace lowtide::verdict
