#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "finding/finding.h"

namespace lowtide::finding {

// The rows of findings.json (docs/json.md). Plain data: verdict/ and heap/ fill them, report/ shows them.

struct VerdictRow {
  std::string pool;     // "cpu", "cuda:0", "heap", "host", "workers", "shm", "fds", "device-other:0"
  int rank = 0;
  std::string verdict;  // leak, bounded, capacity, fragmentation, step_change, healthy, insufficient
  bool watch = false;   // growth that chance cannot explain
  bool alarm = false;   // a leak that runs the memory out within five times the steps already seen
  double confidence = 0;
  std::optional<double> bytes_per_step;
  std::optional<std::pair<double, double>> interval;  // 95 %
  std::optional<uint64_t> onset_step;
  std::optional<std::string> phase;  // step, validation, epoch, checkpoint, other
  std::optional<double> steps_to_oom;
  std::optional<double> seconds_to_oom;
  uint64_t steps_seen = 0;
  std::optional<uint64_t> steps_needed;
  std::string reason;     // one sentence: why this verdict, with numbers
  std::string reason_zh;
  std::string explained_by;  // another pool whose growth shows here too: tensors of `cpu` lie in `heap` and `host`
  std::string fingerprint;  // of the finding that this verdict led to; empty: none
  std::string unnamed;      // of a leak: why no holder is named; empty: one is
  std::string unnamed_zh;
  std::string state;      // the engine's finer state: steady, warmup, reclaimed, rising_in_range, ...
};

struct HolderRow {
  int rank = 0;
  std::string pool;
  std::string path;  // "train.history['logits'][*]"
  std::string root;  // "module train, global history"
  std::string type;
  uint64_t retained_bytes = 0;
  uint64_t objects = 0;
  double bytes_per_step = 0;
  std::string file;  // empty: unknown
  int line = 0;
  bool via_autograd = false;
  std::string code;  // of its kind, LT401 ...; empty: not told
  std::string help, help_zh;  // what to change
};

struct Document {
  std::vector<VerdictRow> verdicts;
  std::vector<HolderRow> holders;
  std::vector<Finding> findings;
};

// findings.json, schema 1.
std::string ToJson(const Document& document);

}  // namespace lowtide::finding
