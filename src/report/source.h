#pragma once

#include <string>

namespace lowtide::report {

// Line `line` (1-based) of a text file without its indentation; empty when it cannot be read.
std::string SourceLine(const std::string& file, int line);

}  // namespace lowtide::report
