#include "report/openmetrics.h"

#include <array>
#include <cmath>

#include "base/json.h"
#include "finding/version.h"

namespace lowtide::report {
namespace {

constexpr size_t kLongestLabel = 200;  // bytes
constexpr const char* kVerdicts[] = {"leak",        "bounded", "capacity",    "fragmentation",
                                     "step_change", "healthy", "insufficient"};

enum Id : size_t {
  kBuild,
  kRuns,
  kRunsLeftOut,
  kLook,
  kRun,
  kRunRanks,
  kUnreadable,
  kFindings,
  kRank,
  kRunning,
  kStart,
  kSteps,
  kStepSeconds,
  kAge,
  kDropped,
  kBytes,
  kReserved,
  kFloor,
  kCapacity,
  kDescriptors,
  kGrowth,
  kGrowthLower,
  kGrowthUpper,
  kVerdict,
  kExplained,
  kWatch,
  kAlarm,
  kStepsLeft,
  kSecondsLeft,
  kCount
};

using enum MetricKind;

// In the order of Id.
std::vector<MetricFamily> MakeCatalogue() {
  return {
      {"lowtide_build_info", kInfo, "", "version", "The lowtide that exports."},
      {"lowtide_runs", kGauge, "", "", "Runs that are exported."},
      {"lowtide_runs_left_out", kGauge, "", "",
       "Runs that are not exported: too many, or ended too long ago."},
      {"lowtide_look_seconds", kGauge, "seconds", "",
       "Time that reading and judging all ranks took at the last look."},

      {"lowtide_run_info", kInfo, "", "run, script", "A run: its folder's name and the script."},
      {"lowtide_run_ranks", kGauge, "", "run", "Training processes of the run that have a record."},
      {"lowtide_run_unreadable_files", kGauge, "", "run",
       "Files of the run that are cut, foreign or on another host."},
      {"lowtide_findings", kGauge, "", "run, code, severity",
       "Findings by code (lowtide explain CODE) and severity."},

      {"lowtide_rank_info", kInfo, "", "run, rank, host", "A rank and the host it runs on."},
      {"lowtide_rank_running", kGauge, "", "run, rank",
       "1 while the rank's process lives, 0 once it has ended."},
      {"lowtide_rank_start_time_seconds", kGauge, "seconds", "run, rank",
       "When the rank's process began, seconds since 1970."},
      {"lowtide_steps_total", kCounter, "", "run, rank", "Training steps ended."},
      {"lowtide_step_seconds", kGauge, "seconds", "run, rank", "Mean time of a step over the newest steps."},
      {"lowtide_last_record_age_seconds", kGauge, "seconds", "run, rank",
       "Time since the rank ended its last step, as of the last look."},
      {"lowtide_dropped_samples_total", kCounter, "", "run, rank, reason",
       "Samples lost: torn (damaged), overwritten (before they were read), uncounted (blocks without a "
       "label)."},

      {"lowtide_pool_bytes", kGauge, "bytes", "run, rank, pool", "Bytes in use at the last step's end."},
      {"lowtide_pool_reserved_bytes", kGauge, "bytes", "run, rank, pool",
       "Bytes that the caching allocator holds."},
      {"lowtide_pool_floor_bytes", kGauge, "bytes", "run, rank, pool",
       "The lower edge of the sawtooth now: what a leak raises."},
      {"lowtide_pool_capacity_bytes", kGauge, "bytes", "run, rank, pool",
       "Bytes at which the pool is out of memory."},
      {"lowtide_open_descriptors", kGauge, "", "run, rank",
       "Open file descriptors at the last step's end (the pool fds)."},

      {"lowtide_pool_growth_bytes_per_step", kGauge, "", "run, rank, pool",
       "Growth of the lower edge per step."},
      {"lowtide_pool_growth_lower_bytes_per_step", kGauge, "", "run, rank, pool",
       "Lower end of the growth's 95 % interval."},
      {"lowtide_pool_growth_upper_bytes_per_step", kGauge, "", "run, rank, pool",
       "Upper end of the growth's 95 % interval."},
      {"lowtide_pool_verdict", kGauge, "", "run, rank, pool, verdict",
       "The verdict: 1 for the one that holds, 0 for the others."},
      {"lowtide_pool_explained", kGauge, "", "run, rank, pool",
       "1 when the growth is that of another pool, seen here too."},
      {"lowtide_pool_watch", kGauge, "", "run, rank, pool", "1 when the pool grows beyond chance."},
      {"lowtide_pool_alarm", kGauge, "", "run, rank, pool",
       "1 when a leak runs the memory out within five times the steps seen."},
      {"lowtide_pool_steps_to_oom", kGauge, "", "run, rank, pool",
       "Steps until the pool is out of memory, where it grows towards a limit."},
      {"lowtide_pool_time_to_oom_seconds", kGauge, "seconds", "run, rank, pool",
       "Time until then at the present pace."},
  };
}

using Labels = std::vector<std::pair<std::string, std::string>>;

// Valid UTF-8 of bounded length: what is not becomes U+FFFD.
std::string LabelText(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (out.size() >= kLongestLabel) return out + "\u2026";
    size_t length = text[at] ? Utf8Length(text, at) : 0;
    if (length) {
      out.append(text, at, length);
    } else {
      out += "\uFFFD";
    }
    at += length ? length : 1;
  }
  return out;
}

class Builder {
 public:
  Builder() : families_(MetricCatalogue()) {}

  void Add(Id id, Labels labels, double value) {
    if (std::isfinite(value)) families_[id].samples.push_back({std::move(labels), value});
  }
  void Add(Id id, const Labels& labels, const std::optional<double>& value) {
    if (value) Add(id, Labels(labels), *value);
  }

  void Run(const RunMetrics& run) {
    std::string name = LabelText(run.run);
    Add(kRun, {{"run", name}, {"script", LabelText(run.script)}}, 1.0);
    Add(kRunRanks, {{"run", name}}, static_cast<double>(run.ranks.size()));
    Add(kUnreadable, {{"run", name}}, static_cast<double>(run.unreadable_files));
    for (const auto& [key, count] : run.findings) {
      Add(kFindings, {{"run", name}, {"code", LabelText(key.first)}, {"severity", LabelText(key.second)}},
          static_cast<double>(count));
    }
    for (const RankMetrics& rank : run.ranks) Rank(name, rank);
  }

  std::vector<MetricFamily> Take() {
    std::erase_if(families_, [](const MetricFamily& family) { return family.samples.empty(); });
    return std::move(families_);
  }

 private:
  void Rank(const std::string& run, const RankMetrics& rank) {
    Labels labels{{"run", run}, {"rank", std::to_string(rank.rank)}};
    auto with = [&](const char* name, const std::string& value) {
      Labels more = labels;
      more.emplace_back(name, value);
      return more;
    };
    Add(kRank, with("host", LabelText(rank.host)), 1.0);
    Add(kRunning, labels, rank.running ? 1.0 : 0.0);
    Add(kStart, labels, rank.start_time);
    Add(kSteps, labels, static_cast<double>(rank.steps));
    Add(kStepSeconds, labels, rank.step_seconds);
    Add(kAge, labels, rank.record_age);
    Add(kDropped, with("reason", "torn"), static_cast<double>(rank.torn));
    Add(kDropped, with("reason", "overwritten"), static_cast<double>(rank.overwritten));
    Add(kDropped, with("reason", "uncounted"), static_cast<double>(rank.uncounted));
    for (const PoolMetrics& pool : rank.pools) Pool(labels, pool);
  }

  void Pool(const Labels& rank, const PoolMetrics& pool) {
    Labels labels = rank;
    labels.emplace_back("pool", LabelText(pool.pool));
    bool bytes = pool.pool != "fds";
    if (bytes) {
      Add(kBytes, labels, pool.now);
      Add(kReserved, labels, pool.reserved);
      Add(kFloor, labels, pool.floor);
      Add(kCapacity, labels, pool.capacity);
      Add(kGrowth, labels, pool.growth);
      Add(kGrowthLower, labels, pool.growth_lower);
      Add(kGrowthUpper, labels, pool.growth_upper);
    } else {
      Add(kDescriptors, rank, pool.now);
    }
    if (pool.verdict.empty()) return;
    for (const char* verdict : kVerdicts) {
      Labels state = labels;
      state.emplace_back("verdict", verdict);
      Add(kVerdict, std::move(state), pool.verdict == verdict ? 1.0 : 0.0);
    }
    Add(kExplained, labels, pool.explained ? 1.0 : 0.0);
    Add(kWatch, labels, pool.watch ? 1.0 : 0.0);
    Add(kAlarm, labels, pool.alarm ? 1.0 : 0.0);
    Add(kStepsLeft, labels, pool.steps_to_oom);
    Add(kSecondsLeft, labels, pool.seconds_to_oom);
  }

  std::vector<MetricFamily> families_;
};

}  // namespace

const std::vector<MetricFamily>& MetricCatalogue() {
  static const std::vector<MetricFamily> catalogue = MakeCatalogue();
  return catalogue;
}

std::vector<MetricFamily> Families(const FleetMetrics& fleet) {
  Builder builder;
  builder.Add(kBuild, {{"version", kVersion}}, 1.0);
  builder.Add(kRuns, {}, static_cast<double>(fleet.runs.size()));
  builder.Add(kRunsLeftOut, {}, static_cast<double>(fleet.runs_left_out));
  builder.Add(kLook, {}, fleet.look_seconds);
  for (const RunMetrics& run : fleet.runs) builder.Run(run);
  return builder.Take();
}

}  // namespace lowtide::report
