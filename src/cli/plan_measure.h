#pragma once

#include "cli/plan.h"
#include "plan/plan.h"

namespace lowtide::cli {

// Runs options.command for a few steps under `lowtide run` and returns what was seen; fills in what `request` lacks (the
// model, the batch) and calibrates it. Throws Error when nothing could be measured.
plan::Measured Measure(const PlanOptions& options, const CommonOptions& common, plan::Request& request, bool model_given);

}  // namespace lowtide::cli
