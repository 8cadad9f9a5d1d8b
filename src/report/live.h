#pragma once

#include <string>
#include <vector>

#include "base/terminal.h"
#include "report/run_view.h"

namespace lowtide::report {

// The live view of a run, line by line, no line wider than the terminal: who runs, then one row per rank and pool
// (current bytes, trend, verdict, steps left, a sparkline), then why for what needs attention. At most `height` lines;
// rows that find no room are counted, the calm ones first.
std::vector<std::string> LiveLines(const RunView& view, const Terminal& terminal, const std::string& lang, int height);

}  // namespace lowtide::report
