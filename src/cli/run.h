#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace lowtide::cli {

struct RunOptions {
  std::string folder;                // -o; empty: lowtide-runs/<script>-<time>
  std::string module;                // -m
  std::string python;                // --python
  std::string fail_on;               // empty: the script's own exit code
  uint64_t steps = 0;                // --steps; 0: until the script ends
  uint64_t capacity = 0;             // --capacity, bytes; 0: as found
  double exit_at = 0;                // --exit-at, a share of the tightest memory limit; 0: never
  bool resume = false;               // --resume: start again after a failure or an early end
  int restarts = 3;                  // --restarts, with --resume
  bool quiet = false;
  bool force = false;                // -f: write into a folder that has a run already
  bool census = true;                // --no-holders turns it off
  std::vector<std::string> command;  // SCRIPT [ARGS], MODULE's ARGS, or after `--` a command
  bool is_command = false;           // after `--`
};

int Run(const RunOptions& options, const CommonOptions& common);

}  // namespace lowtide::cli
