#include "plan/stage.h"

#include <algorithm>
#include <cmath>

namespace lowtide::plan {

// Layers are dealt out evenly; the ends get no more than others when they do not divide.
static double LayersOf(uint64_t layers, uint64_t stages) { return static_cast<double>(layers) / static_cast<double>(stages); }

Stage MakeStage(const Shape& shape, const ParameterCount& count, const Setup& setup, uint64_t index) {
  const double t = static_cast<double>(setup.tensor), ep = static_cast<double>(setup.expert);
  Stage stage;
  stage.index = index;
  stage.first = index == 0;
  stage.last = index + 1 == setup.pipeline;
  stage.layers = LayersOf(count.layers, setup.pipeline);
  const double unsplit = std::min(count.unsplit, count.layer - count.experts);
  stage.layer = (count.layer - count.experts - unsplit) / t + unsplit;
  stage.layer_experts = count.experts / t / ep;
  const double positions = std::min(count.embedding, static_cast<double>(shape.positions) * static_cast<double>(shape.hidden));
  const double table = (count.embedding - positions) / t;
  if (stage.first) stage.embedding = table + positions;
  if (stage.last) {
    stage.head = count.head / t;
    if (shape.tied && shape.has_head && !stage.first) stage.head += table;  // tied: the last stage has its own copy
  }
  stage.ends = stage.embedding + stage.head + (stage.last ? count.rest : 0);
  stage.lora = static_cast<double>(setup.lora_rank) * count.linear_sides * stage.layers / t;
  stage.in_flight = std::min(static_cast<double>(setup.pipeline - index), static_cast<double>(setup.accumulate));
  if (setup.pipeline == 1) stage.in_flight = 1;
  return stage;
}

}  // namespace lowtide::plan
