#pragma once

#include <array>
#include <string>
#include <vector>

#include "plan/setup.h"
#include "plan/shape.h"
#include "plan/text.h"

namespace lowtide::plan {

// Moments of a training step at which the memory can be highest. kSteady: between two steps.
enum Moment : int { kLoss, kBackward, kBackwardEnd, kStep, kSteady, kMoments };

using Bytes = std::array<double, kMoments>;

// One labelled piece of the memory of one GPU.
struct Term {
  std::string id;          // "weights", "gradients", ...
  Text name;
  Text formula;            // in words
  std::string source;      // paper, document or code that the formula comes from
  Bytes bytes{};           // at each moment
};

// The memory of one pipeline stage's GPUs.
struct StageMemory {
  uint64_t stage = 0;      // 0: the first
  double parameters = 0;   // of this stage on one GPU before sharding
  double layers = 0;
  std::vector<Term> terms;

  double At(Moment moment) const;
  Moment PeakMoment() const;  // the highest of a step
  double Peak() const { return At(PeakMoment()); }
  // The bytes of the terms with this id at the peak; 0 without.
  double Part(const std::string& id) const;
};

// What PyTorch allocates on one GPU. The terms of a stage add up to its figure: nothing is added that has no label.
struct Estimate {
  Setup setup;
  std::vector<StageMemory> stages;  // the first, and with pipeline parallelism the last
  size_t worst = 0;                 // index of the highest
  double band = 0.2;                // how far off the peak may be, as a share

  const StageMemory& Worst() const { return stages[worst]; }
  double Peak() const { return Worst().Peak(); }
  double Steady() const;            // the highest between two steps
};

// Predicts. Throws Error when the setup does not fit the model (CheckShape, CheckSetup).
Estimate Predict(const Shape& shape, const Setup& setup);

// What no tensor can use: the CUDA context, NCCL's buffers, and the allocator's holes. Bytes; part of no peak.
struct Unusable {
  double context = 0, communication = 0, fragmentation = 0;
  double total() const { return context + communication + fragmentation; }
};
Unusable UnusableMemory(const Estimate& estimate);

enum class Fit { kFits, kTooClose, kTooLarge };
// Fits only when the peak, wrong by the whole band, still fits beside what cannot be used.
Fit Judge(const Estimate& estimate, double capacity);


}  // namespace lowtide::plan
