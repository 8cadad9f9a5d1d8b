#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace lowtide::lint {

// Where comments are and which lines begin a statement: all that suppressions and notebook magics need of
// Python's grammar, without a parse. Strings (also triple-quoted), brackets and line continuations are
// followed; broken source gives some answer, never a failure.
struct Comment {
  uint32_t start = 0, end = 0;  // bytes, from '#' to before the line's end
  uint32_t line = 1;
};

struct LineScan {
  std::vector<Comment> comments;
  std::vector<uint32_t> line_starts;  // byte offset of each line; there is always a first line
  std::vector<bool> fresh;            // per line: it begins outside strings, brackets and continuations
  std::vector<bool> comment_allowed;  // per line: it ends outside strings and not in a backslash
};

// `skip`, when given, is asked for each fresh line (with its byte offset); a line that it claims is passed
// over together with its backslash continuations, whatever quotes and brackets it has.
LineScan ScanLines(std::string_view text, const std::function<bool(size_t line_start)>& skip = nullptr);

// Byte offsets of the lines' beginnings; line ends are \n, \r\n and \r, as Python has them.
std::vector<uint32_t> LineStarts(std::string_view text);

}  // namespace lowtide::lint
