#pragma once

#include <string>

#include "cli/verbs.h"

namespace lowtide::cli {

struct CheckpointOptions {
  std::string action;           // verify, list, show
  std::string path;             // a checkpoint, or a folder of them
  std::string format = "text";  // text, json
};

// 0: all whole; 1: something is damaged (verify only).
int Checkpoint(const CheckpointOptions& options, const CommonOptions& common);

}  // namespace lowtide::cli
