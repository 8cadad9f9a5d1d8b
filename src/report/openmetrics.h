// What `lowtide export` tells of runs, as metric families with names, units and labels by OpenMetrics'
// conventions (https://prometheus.io/docs/specs/om/open_metrics_spec/). docs/metrics.md lists them; a test
// holds the two together.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lowtide::report {

// One pool of one rank as it is known now. Bytes; `fds` counts descriptors.
struct PoolMetrics {
  std::string pool;
  double now = 0;
  std::optional<double> reserved, floor, capacity;
  std::optional<double> growth, growth_lower, growth_upper;  // B/step
  std::optional<double> steps_to_oom, seconds_to_oom;
  std::string verdict;  // as findings.json has it; empty: not judged yet
  bool watch = false, alarm = false;
  bool explained = false;  // another pool's growth shows here too
};

struct RankMetrics {
  int rank = 0;
  std::string host;
  bool running = false;
  uint64_t steps = 0;
  double start_time = 0;               // seconds since 1970
  double record_age = 0;               // seconds since the last record, as of the look
  std::optional<double> step_seconds;  // mean of the newest steps
  uint64_t torn = 0, overwritten = 0, uncounted = 0;
  std::vector<PoolMetrics> pools;
};

struct RunMetrics {
  std::string run;  // the folder's name, or its path where two have the same
  std::string script;
  std::vector<RankMetrics> ranks;                                    // one per rank: the newest process of it
  std::map<std::pair<std::string, std::string>, uint64_t> findings;  // (code, severity) -> how many
  uint64_t unreadable_files = 0;
};

struct FleetMetrics {
  std::vector<RunMetrics> runs;
  uint64_t runs_left_out = 0;  // beyond the limit, or ended long ago
  double look_seconds = 0;     // what the last look cost
};

enum class MetricKind { kGauge, kCounter, kInfo };

struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;
};

struct MetricFamily {
  const char* name;  // as samples carry it: with `_total` or `_info`
  MetricKind kind;
  const char* unit;    // "bytes", "seconds", "" for counts; the name ends in it
  const char* labels;  // comma-separated, for the docs
  const char* help;
  std::vector<MetricSample> samples = {};
};

// Every family, without samples, in the order in which they are written.
const std::vector<MetricFamily>& MetricCatalogue();

// The families that have a sample. Label values are valid UTF-8 of bounded length, whatever names runs and
// scripts have.
std::vector<MetricFamily> Families(const FleetMetrics& fleet);

// Prometheus' text format 0.0.4, as node_exporter's textfile collector reads it, or OpenMetrics 1.0.
std::string ToPrometheusText(const std::vector<MetricFamily>& families);
std::string ToOpenMetrics(const std::vector<MetricFamily>& families);

}  // namespace lowtide::report
