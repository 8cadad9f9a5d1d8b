#pragma once

#include "report/phrases.h"
#include "report/run_view.h"

namespace lowtide::report {

// A copy of `view` for a reader who must not see the program: no command, folder, file, line, object path, type or
// replacement text; what names them in a sentence (their own text, and all that stands in backquotes) becomes "[hidden]".
RunView HideSources(const RunView& view, const Words& words);

}  // namespace lowtide::report
