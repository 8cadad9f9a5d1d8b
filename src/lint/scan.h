#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lowtide::lint {

// A run of whole lines.
struct Range {
  uint32_t start = 0, end = 0;  // bytes
  uint32_t first_line = 0;      // from 0
  uint32_t last_line = 0;       // the line that `end` stands on
};

// The parts of a file that some rule, or some other file, could want to know: top-level statements, and those functions
// and methods that have to do with training by the names in them, or are called by such. One pass over the bytes, some
// thirty times faster than a parse. Empty when the file is of no interest; the whole file when its outline is unclear.
std::vector<Range> RelevantRanges(std::string_view text);

inline bool WorthParsing(std::string_view text) { return !RelevantRanges(text).empty(); }

}  // namespace lowtide::lint
