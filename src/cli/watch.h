#pragma once

#include <string>

#include "cli/verbs.h"

namespace lowtide::cli {

struct WatchOptions {
  std::string folder;            // empty: the newest one in lowtide-runs/
  bool once = false;             // print what is known now and leave
  std::string format = "text";   // json: only with `once`; the document of `lowtide report --format json`
  double interval = 0;           // seconds between two looks; 0: 1 on a terminal, 10 elsewhere
};

// The live view of a run, from outside and read only. Ends when the run has ended, on q, or on Ctrl-C.
int Watch(const WatchOptions& options, const CommonOptions& common);

}  // namespace lowtide::cli
