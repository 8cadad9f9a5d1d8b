#pragma once

#include <string>
#include <vector>

#include "base/terminal.h"
#include "report/run_view.h"

namespace lowtide::report {

// Seven lines: the value over the steps in dim dots, the lower edge in red, figures at the left, steps below. Braille
// dots where the terminal knows Unicode, else '.' and '_'.
std::string PlotSeries(const SeriesView& series, const Terminal& terminal);

// One character per column, the last of `values` at the right; scaled between their own smallest and largest.
std::string Sparkline(const std::vector<double>& values, int columns, const Terminal& terminal);

}  // namespace lowtide::report
