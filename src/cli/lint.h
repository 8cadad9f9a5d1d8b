#pragma once

#include <string>

#include "cli/verbs.h"
#include "lint/driver.h"

namespace lowtide::cli {

struct LintOptions {
  lint::DriverOptions driver;
  std::string format = "text";  // text, concise, json, sarif, github, gitlab, junit
  std::string output;           // file; empty: standard output
  std::string fail_on;          // empty: the configured one, else error
  int preview = 0;              // 1: --preview, -1: --no-preview
  uint64_t max_megabytes = 16;
  bool fix = false, diff = false;
  bool exit_zero = false;
  bool statistics = false;
  bool quiet = false;  // no summary
  bool lsp = false;    // language server on standard input and output
};

int Lint(const LintOptions& options, const CommonOptions& common);

}  // namespace lowtide::cli
