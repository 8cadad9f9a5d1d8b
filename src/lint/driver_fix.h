#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lint/lint.h"

namespace lowtide::lint {

// A file being fixed: what is checked (`source`) and what is stored (`stored`: for notebooks the JSON).
struct Fixing {
  std::string stored;
  std::string source;
  size_t fixed = 0;      // diagnostics whose fix was carried out
  size_t withdrawn = 0;  // fixes that would have broken the file, or do not fit a notebook's cells
};

struct FixRules {
  bool unsafe = false;  // also fixes that may change results
  // What is wrong in a source: called again after each round.
  std::function<std::vector<Diagnostic>(std::string_view source)> check;
  // Carries edits of `fixing.source` out in both texts; false: it cannot be done.
  std::function<bool(Fixing& fixing, const std::vector<Edit>& edits)> apply;
};

// Applies fixes until none is left: per round those that do not overlap, in order of position. A fix after
// which the source has more syntax errors than before is withdrawn. At most 20 rounds. Outside the edits no
// byte changes.
void FixAll(Fixing& fixing, const FixRules& rules);

// `text` with sorted edits that do not overlap carried out.
std::string ApplyEdits(std::string_view text, const std::vector<Edit>& edits);

// The number of places where `text` is not Python; comparable between two versions of a file.
size_t SyntaxErrors(std::string_view text);

// Replaces the file behind `path` (through links, its permissions kept) unless it is no longer what was read,
// `old`. Throws Error.
void ReplaceFile(const std::string& path, std::string_view old, std::string_view content);

}  // namespace lowtide::lint
