#pragma once

#include "plan/setup.h"

namespace lowtide::report {

// As the options of `lowtide plan` spell them.
const char* StrategyWord(plan::Strategy strategy);
const char* PrecisionWord(const plan::Setup& setup);
const char* OptimizerWord(plan::Optimizer optimizer);
const char* RecomputeWord(plan::Recompute recompute);
const char* CodeWord(plan::Code code);
const char* LogitsWord(plan::Logits logits);

}  // namespace lowtide::report
