#pragma once

#include <string>

#include "cli/verbs.h"

namespace lowtide::cli {

struct DoctorOptions {
  std::string format = "text";  // text, json
  std::string python;           // --python
};

// What this machine, interpreter and PyTorch can be watched for, and what not. Runs the interpreter once with lowtide
// inside and reads what it could hook. Returns 0, or 2 when nothing at all can be watched.
int Doctor(const DoctorOptions& options, const CommonOptions& common);

}  // namespace lowtide::cli
