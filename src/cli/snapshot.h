#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace lowtide::cli {

struct SnapshotOptions {
  std::vector<std::string> files;
  std::string format = "text";  // text, json, html, speedscope, trace
  std::string output;           // empty: standard output
  std::string diff;             // an earlier snapshot
  std::string replay;           // settings or "best"
  std::string fail_on = "error";
  uint64_t capacity = 0;  // bytes; 0: not known
  bool hide_sources = false;
  unsigned threads = 0;
};

int Snapshot(const SnapshotOptions& options, const CommonOptions& common);

}  // namespace lowtide::cli
