#pragma once

#include <string>

#include "cli/verbs.h"

namespace lowtide::cli {

struct ExplainOptions {
  std::string code;  // "LT201"; empty: list all
};

int Explain(const ExplainOptions& options, const CommonOptions& common);

}  // namespace lowtide::cli
