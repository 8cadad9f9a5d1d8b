#pragma once

#include <string>

#include "base/terminal.h"
#include "lint/driver.h"

namespace lowtide::report {

// What `lowtide lint` found, in each of its formats. All but LintText are for machines: no colour, English.

// One block per finding: place, code, message, the line with the span underlined, help, and what --fix would
// do. `lang` is "en" or "zh".
std::string LintText(const lint::Report& report, const Terminal& terminal, const std::string& lang);

// "a.py:3:5: LT101 [*] message" per finding; [*] marks what --fix cures.
std::string LintConcise(const lint::Report& report, const Terminal& terminal);

// The closing lines of both: how many, how many can be fixed, what was left out, what to type next.
std::string LintSummary(const lint::Report& report, const Terminal& terminal, bool unsafe_fixes,
                        const std::string& lang = "en");

// As docs/lint.md has it. Lines and columns from 1, columns count code points; a notebook's findings have
// "cell".
std::string LintJson(const lint::Report& report);

std::string LintSarif(const lint::Report& report);

// Workflow commands that GitHub Actions shows beside the lines.
std::string LintGithub(const lint::Report& report);

// GitLab's Code Quality report.
std::string LintGitlab(const lint::Report& report);

// JUnit XML: a suite per file, a failed case per finding.
std::string LintJunit(const lint::Report& report);

// "12  LT101  [*]  loss-accumulated-with-graph" per code, most frequent first.
std::string LintStatistics(const lint::Report& report);

// Line `line` (from 1) of `text` with `column` to `end_column` (code points, end excluded; 0: to the line's
// end) underlined, and the line before it. Tabs and control characters are made visible widths, long lines
// are cut around the span. `shown_line` is the number to print.
std::string CodeFrame(const std::string& text, uint32_t line, uint32_t column, uint32_t end_column,
                      uint32_t shown_line, const Terminal& terminal);

// `text` without control characters that could move the cursor or colour the screen.
std::string Printable(const std::string& text);

}  // namespace lowtide::report
