#pragma once

#include <string>
#include <vector>

#include "report/phrases.h"
#include "report/run_view.h"

namespace lowtide::report {

// At most `limit` points of `points` (in order of steps): of each of limit / 4 equal ranges of steps the first, the last,
// the smallest and the largest value, so that the line drawn from them is the line of all (M4: Jugel et al., VLDB 2014).
std::vector<SeriesView::Point> Thin(const std::vector<SeriesView::Point>& points, size_t limit);

// What the page's script draws: {"words": {...}, "series": [...]}, one entry for each of view.series, same order.
std::string ChartData(const RunView& view, const Words& words);

}  // namespace lowtide::report
