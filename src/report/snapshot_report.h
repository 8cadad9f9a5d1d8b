#pragma once

#include <string>
#include <vector>

#include "base/terminal.h"
#include "snapshot/compare.h"
#include "snapshot/explain.h"

namespace lowtide::report {

// What `lowtide snapshot` shows: one file, two to compare, or many that are ranks of one job.
struct SnapshotView {
  std::vector<snapshot::Explanation>& files;  // at least one
  const std::vector<snapshot::DeviceDiff>* diff = nullptr;
  std::string diff_file;  // the earlier one
  const snapshot::Ranks* ranks = nullptr;
  std::vector<finding::Finding> findings;  // of all files, and of the ranks together
};

struct SnapshotOptions {
  std::string lang = "en";
  bool hide_sources = false;  // leave out paths and source lines
  size_t rows = 15;           // of each table in text
};

std::string SnapshotToText(const SnapshotView& view, const Terminal& terminal,
                           const SnapshotOptions& options);
// docs/json.md, "snapshot".
std::string SnapshotToJson(const SnapshotView& view, const SnapshotOptions& options);
// One self-contained page: timeline, segment map, flame graph of the peak, tables.
std::string SnapshotToHtml(const SnapshotView& view, const SnapshotOptions& options);
// https://www.speedscope.app/file-format-schema.json: a sampled profile per device, weights are bytes at the
// peak.
std::string SnapshotToSpeedscope(const SnapshotView& view, const SnapshotOptions& options);
// Trace Event Format (chrome://tracing, Perfetto): counters of live and reserved memory, annotations, oom
// marks.
std::string SnapshotToTrace(const SnapshotView& view, const SnapshotOptions& options);

}  // namespace lowtide::report
