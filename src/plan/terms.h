#pragma once

#include <vector>

#include "plan/estimate.h"
#include "plan/stage.h"

namespace lowtide::plan {

// What the term builders share.
struct Context {
  const Shape& shape;
  const Setup& setup;
  const ParameterCount& count;
  const Stage& stage;
  StateBytes per;          // bytes per trained parameter
  double frozen_bytes = 0; // per parameter that is not trained
  double trained_share = 1;// of the stage's own parameters (0 under LoRA, whose adapters are apart)
};

Context MakeContext(const Shape& shape, const Setup& setup, const ParameterCount& count, const Stage& stage);

// Each appends its terms.
void AddStates(const Context& context, std::vector<Term>& terms);       // weights, gradients, optimizer
void AddDeepSpeedStates(const Context& context, std::vector<Term>& terms);
void AddBuffers(const Context& context, std::vector<Term>& terms);      // gathered weights, buckets, casts, workspaces
void AddActivations(const Context& context, std::vector<Term>& terms);  // kept, recomputed, logits

}  // namespace lowtide::plan
