#pragma once

#include <string>
#include <vector>

#include "cli/verbs.h"

namespace lowtide::cli {

struct ExportOptions {
  std::vector<std::string> places;    // run folders, or folders of runs; empty: lowtide-runs
  std::string listen;                 // HOST:PORT; empty: no server
  std::string textfile;               // for node_exporter's textfile collector; empty: none
  std::string tensorboard;            // folder for event files; empty: none
  bool once = false;                  // one look, then leave; prints unless it goes elsewhere
  std::string format = "prometheus";  // of what is printed: prometheus, openmetrics
  double interval = 5;                // seconds between two looks
};

// Figures and verdicts of all ranks of all runs here, for Prometheus and TensorBoard. From outside and read
// only; ends on SIGINT or SIGTERM with 0.
int Export(const ExportOptions& options, const CommonOptions& common);

}  // namespace lowtide::cli
