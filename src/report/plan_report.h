#pragma once

#include <string>
#include <string_view>

#include "base/terminal.h"
#include "plan/plan.h"

namespace lowtide::report {

// The terms of the shown setup, the ranked strategies, and what to do next, in `lang` ("en" or "zh").
std::string PlanToText(const plan::Plan& plan, const Terminal& terminal, std::string_view lang);

// The document that docs/plan.md describes. Bytes are whole; the terms' sum is the peak to the byte.
std::string PlanToJson(const plan::Plan& plan);

}  // namespace lowtide::report
