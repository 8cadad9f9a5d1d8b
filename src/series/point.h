#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace lowtide::series {

// What the program was doing. Points carry the phase they were taken in, marks the phase that just ran.
enum class Phase : uint8_t { kStep, kValidation, kEpoch, kCheckpoint, kOther };

const char* PhaseName(Phase phase);  // "step", "validation", "epoch", "checkpoint", "other"
std::optional<Phase> ParsePhase(std::string_view name);  // also "train", "val", "eval", "test", "save", ...

// One reading of one pool of one rank, at the end of a step. Bytes (counts for `fds`); what was not read is
// NaN.
struct Point {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  uint64_t step = 0;
  double time_s = kUnknown;
  double value = 0;            // the pool's figure: allocated, heap in use, RSS, used - reserved ...
  double peak = kUnknown;      // the most it was since the point before
  double reserved = kUnknown;  // caching allocators: what the driver has given
  Phase phase = Phase::kStep;
};

// The unit in which a pool's figures move, in bytes: an exact series still has this much noise.
//   cpu and cuda 512 (the allocators' rounding), heap 64, host and workers 4096 (pages), device-other 1 MiB
//   (the driver's figure), shm 4096, fds 1.
double QuantumOf(std::string_view pool);

}  // namespace lowtide::series
