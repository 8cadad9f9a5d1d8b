#pragma once

#include <string>

#include "report/run_view.h"

namespace lowtide::report {

struct HtmlOptions {
  std::string lang = "en";    // "en", "zh"
  bool hide_sources = false;  // leaves out source lines, file names, object paths, the command and the folder
};

// The report of a run as one HTML file that loads nothing: verdict cards with charts, other pools, findings, ranks, and
// the pages of the codes that occur. All text is escaped; series are thinned to a few thousand points.
std::string ToHtml(const RunView& view, const HtmlOptions& options);

}  // namespace lowtide::report
