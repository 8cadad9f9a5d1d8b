#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lint/lint.h"

namespace lowtide::lint {

inline constexpr const char* kUnusedSuppression = "LT950";

// One `# noqa`, `# noqa: LT101, LT102` or, for the whole file, `# lowtide: noqa[: ...]`.
struct Directive {
  struct Code {
    std::string code;
    uint32_t start = 0, end = 0;  // bytes, in the source
  };
  uint32_t line = 1;        // the source line it stands on
  uint32_t first_line = 1;  // the first line it holds for: earlier when no comment can stand on those between
  bool whole_file = false;
  std::vector<Code> codes;      // empty: everything
  uint32_t start = 0, end = 0;  // bytes of the directive, from its '#' to its last code
  uint32_t column = 1;          // of its '#', in code points
};

// The directives that stand in comments (not in strings) and may concern us: those that name only other
// checkers' codes are left out.
std::vector<Directive> FindDirectives(std::string_view text);

// Takes out of `diagnostics` those that a directive covers: it holds for the diagnostic's first or last line,
// or for the file. `suppressed` counts them. What a directive names without need comes back as LT950 with a
// safe fix. `diagnostics` must come from all rules: whether a suppression is needed does not depend on what
// is selected.
std::vector<Diagnostic> Suppress(std::vector<Diagnostic>& diagnostics,
                                 const std::vector<Directive>& directives, std::string_view text,
                                 size_t& suppressed);

// The edit that suppresses `code` on `line` (1-based): a new comment, or one more code in the one that is
// there.
Edit AddSuppression(std::string_view text, uint32_t line, const std::string& code);

}  // namespace lowtide::lint
