#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/verbs.h"

namespace lowtide::cli {

struct VerdictOptions {
  std::string file;             // "-": standard input
  std::string format = "text";  // text, json
  uint64_t capacity = 0;        // bytes; 0: unknown
  std::string fail_on = "error";
};

int Verdict(const VerdictOptions& options, const CommonOptions& common);

}  // namespace lowtide::cli
