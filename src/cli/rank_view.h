#pragma once

#include "record/ring_reader.h"
#include "report/run_view.h"

namespace lowtide::cli {

// What the reports show of one process: who it is, how far it came, how it ended, its phases.
report::RankView RankViewOf(const record::Ring& ring);

}  // namespace lowtide::cli
