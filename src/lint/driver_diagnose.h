#pragma once

#include <string_view>
#include <vector>

#include "lint/driver_select.h"
#include "lint/lint.h"

namespace lowtide::lint {

// All that is reported of one source: its standing suspicions, less what is suppressed or not selected, plus
// suppressions that cover nothing; by position. `suppressed` counts the selected ones that a comment took
// away.
std::vector<Diagnostic> Diagnose(std::string_view source, const ModuleFacts& facts, const Index& index,
                                 const Selection& selection, bool respect_noqa, size_t& suppressed);

}  // namespace lowtide::lint
