#pragma once

#include "plan/setup.h"
#include "plan/shape.h"

namespace lowtide::plan {

// What one GPU of one pipeline stage has to do with: parameters after the split over tensor-parallel GPUs, before the
// states' sharding.
struct Stage {
  uint64_t index = 0;
  double layers = 0;
  bool first = true, last = true;
  double layer = 0;        // parameters of one layer, without its experts
  double layer_experts = 0;
  double ends = 0;         // embedding, head, final norm
  double embedding = 0, head = 0;  // of `ends`
  double lora = 0;         // adapters of the stage
  double in_flight = 1;    // micro batches whose activations it keeps

  double dense() const { return layers * layer + ends; }
  double experts() const { return layers * layer_experts; }
  double all() const { return dense() + experts(); }
};

Stage MakeStage(const Shape& shape, const ParameterCount& count, const Setup& setup, uint64_t index);

}  // namespace lowtide::plan
