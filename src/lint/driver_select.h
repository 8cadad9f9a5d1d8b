#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lint/config.h"
#include "lint/driver.h"
#include "lint/lint.h"

namespace lowtide::lint {

// Which findings are reported in a file.
struct Selection {
  RuleSet rules;
  bool unused_suppressions = true;  // LT950

  bool Has(const std::string& code) const;
};

// One layer of choices: the configuration's, or the command line's.
struct Choice {
  std::optional<std::vector<std::string>> select;
  std::vector<std::string> extend_select, ignore;
};

// What the layers choose. A layer's `select` starts afresh; `extend_select` adds, `ignore` takes away, and of
// two selectors the more specific one wins (LT101 over LT10 over LT1 over ALL), `ignore` between equals.
// Throws Error for a selector that names nothing.
Selection Select(const std::vector<Choice>& layers, bool preview);

// `selection` less what `per_file_ignores` (pattern -> selectors) takes away for the file at `relative`.
Selection ForFile(const Selection& selection,
                  const std::vector<std::pair<std::string, std::vector<std::string>>>& ignores,
                  const std::string& relative);

// Throws Error unless `selector` is ALL, a code or a prefix of one.
void CheckSelector(const std::string& selector);

// What the command line chooses.
struct LineChoice {
  Choice choice;
  std::optional<bool> preview;
  std::vector<std::pair<std::string, std::vector<std::string>>>
      per_file_ignores;  // relative to the current folder
};

// Throws Error for unknown codes.
LineChoice ChoiceOf(const DriverOptions& options);

// What is reported in the file at `absolute`. Throws Error when the configuration names an unknown code.
Selection SelectFor(const Config& config, const LineChoice& line, const std::string& absolute);

}  // namespace lowtide::lint
