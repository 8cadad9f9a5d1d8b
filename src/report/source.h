#pragma once

#include <string>
#include <vector>

namespace lowtide::report {

// Line `line` (1-based) of a text file without its indentation; empty when it cannot be read.
std::string SourceLine(const std::string& file, int line);

struct SourceRow {
  int line = 0;
  std::string text;  // without the indentation that all rows share, cut at 160 bytes
};

// Lines line - around .. line + around, as far as they exist; empty when `file` is no regular file of at most 16 MB or
// has no such line.
std::vector<SourceRow> SourceAround(const std::string& file, int line, int around);

}  // namespace lowtide::report
