#pragma once

#include <string>

#include "base/terminal.h"
#include "report/run_view.h"

namespace lowtide::report {

// The report of a run for a terminal: one block per verdict that needs attention (what, how sure and why, who holds
// it, where, what to do next, a plot with the lower edge), one line for what is healthy, then other findings.
// `lang` is "en" or "zh".
std::string ToText(const RunView& view, const Terminal& terminal, const std::string& lang);

}  // namespace lowtide::report
