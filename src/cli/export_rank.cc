// One rank's figures for `lowtide export`: from its ring and its verdicts.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "cli/export_fleet.h"

namespace lowtide::cli {
namespace {

constexpr size_t kPaceSteps = 32;  // whose mean is the step's time

double Seconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

bool OnThisHost(const record::FileHeader& header) {
  char name[sizeof header.hostname] = {};
  ::gethostname(name, sizeof name - 1);
  return std::string(name) == header.hostname;
}

// A living process of this host shares our monotonic clock, which no one sets; else only the wall clocks
// remain.
double AgeOf(const record::Ring& ring, bool running) {
  int64_t last = ring.steps().empty() ? ring.header().start_mono_ns : ring.steps().back().mono_ns;
  double age = running && OnThisHost(ring.header())
                   ? Seconds(CLOCK_MONOTONIC) - static_cast<double>(last) * 1e-9
                   : Seconds(CLOCK_REALTIME) - ring.WallTime(last);
  return std::max(0.0, age);
}

std::optional<double> PaceOf(const record::Ring& ring) {
  const auto& steps = ring.steps();
  size_t count = std::min(steps.size(), kPaceSteps + 1);
  if (count < 2) return std::nullopt;
  const auto &first = steps[steps.size() - count], &last = steps.back();
  if (last.step <= first.step) return std::nullopt;
  return static_cast<double>(last.mono_ns - first.mono_ns) * 1e-9 /
         static_cast<double>(last.step - first.step);
}

std::optional<double> ReservedOf(const record::Ring& ring, const std::string& pool) {
  const auto& records = ring.devices();
  for (auto at = records.rbegin(); at != records.rend() && at < records.rbegin() + record::kMaxDevices;
       ++at) {
    if (at->reserved_bytes == record::kAbsent || record::DeviceName(at->type, at->index) != pool) continue;
    return static_cast<double>(at->reserved_bytes);
  }
  return std::nullopt;
}

report::PoolMetrics PoolOf(const record::Ring& ring, const std::string& name, RankJudge::Level level,
                           const verdict::Judgement* judgement) {
  report::PoolMetrics pool;
  pool.pool = name;
  pool.now = level.now;
  pool.floor = level.floor;
  pool.reserved = ReservedOf(ring, name);
  if (!judgement) return pool;
  pool.capacity = judgement->capacity;
  pool.growth = judgement->bytes_per_step;
  if (judgement->interval) {
    pool.growth_lower = judgement->interval->first;
    pool.growth_upper = judgement->interval->second;
  }
  pool.steps_to_oom = judgement->steps_to_oom;
  pool.seconds_to_oom = judgement->seconds_to_oom;
  pool.verdict = verdict::KindName(judgement->kind);
  pool.watch = judgement->watch;
  pool.alarm = judgement->alarm;
  return pool;
}

}  // namespace

report::RankMetrics RankMetricsOf(const Follower::Followed& rank) {
  const record::FileHeader& header = rank.ring.header();
  report::RankMetrics out;
  out.rank = rank.view.rank;
  out.host = header.hostname;
  out.running = rank.view.ended == "still running";
  out.steps = rank.view.steps;
  out.start_time = static_cast<double>(header.start_wall_ns) * 1e-9;
  out.record_age = AgeOf(rank.ring, out.running);
  out.step_seconds = PaceOf(rank.ring);
  out.torn = rank.ring.loss().torn;
  out.overwritten = rank.ring.loss().overwritten;
  const record::Counters& counters = header.counters;
  out.uncounted =
      counters.untracked_allocs + counters.lost_blocks + counters.lost_marks + counters.lost_workers;
  for (const auto& [name, level] : rank.judge.Now()) {
    auto judged = std::find_if(rank.judgements.begin(), rank.judgements.end(),
                               [&](const auto& judgement) { return judgement.pool == name; });
    bool known = judged != rank.judgements.end();
    out.pools.push_back(PoolOf(rank.ring, name, level, known ? &*judged : nullptr));
    auto index = static_cast<size_t>(judged - rank.judgements.begin());
    out.pools.back().explained = known && index < rank.cause.size() && rank.cause[index] != index;
  }
  return out;
}

}  // namespace lowtide::cli
