#pragma once

#include <cstdint>
#include <string>

#include "cli/verbs.h"

namespace lowtide::cli {

struct ReportOptions {
  std::string folder;
  std::string format = "text";  // text, json, html, sarif
  std::string output;           // empty: standard output
  std::string fail_on = "error";
  bool hide_sources = false;  // html: leave sources and paths out
  uint64_t capacity = 0;  // bytes; 0: as recorded
};

int Report(const ReportOptions& options, const CommonOptions& common);

}  // namespace lowtide::cli
