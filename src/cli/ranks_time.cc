// Stragglers. In synchronous training all ranks' steps take equally long, since each waits for the slowest: what tells them
// apart is the time of their own, without the wait for others.
#include <fmt/core.h>

#include <algorithm>

#include "base/units.h"
#include "cli/ranks_compare.h"

namespace lowtide::cli {
namespace {

constexpr double kScore = 0.75;        // the best rank's own time over this one's
constexpr size_t kFewest = 30;         // steps that all ranks have
constexpr uint64_t kWarmUp = 10;       // first steps, left out
constexpr double kLeastSeconds = 4e-3; // of excess a step: less comes from sharing a machine
constexpr double kLeastShare = 0.15;   // of a step that the excess must take

struct Figures {
  double seconds = 0, data = 0, collective = 0, compute = 0, own = 0;  // medians, seconds
  double quiet = 0;  // own time that three steps of four exceed: what a busy machine adds now and then is not in it
};

double Quantile(std::vector<double> values, size_t quarter) {
  auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() * quarter / 4);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double Median(const std::vector<double>& values) { return Quantile(values, 2); }

Figures FiguresOf(const RankTrack& track, const std::vector<uint64_t>& steps, size_t begin, size_t end) {
  std::vector<double> seconds, data, collective, compute, own;
  for (size_t i = begin; i < end; ++i) {
    const auto& step = track.steps.at(steps[i]);
    seconds.push_back(step.seconds), data.push_back(step.data), collective.push_back(step.collective);
    compute.push_back(step.compute()), own.push_back(step.own());
  }
  return {Median(seconds), Median(data), Median(collective), Median(compute), Median(own), Quantile(own, 1)};
}

std::vector<uint64_t> CommonSteps(const Ranks& ranks) {
  std::vector<uint64_t> steps;
  for (const auto& [step, figures] : ranks.tracks[0].steps) {
    bool all = step > kWarmUp && std::all_of(ranks.tracks.begin(), ranks.tracks.end(), [&](const RankTrack& track) {
      auto at = track.steps.find(step);
      return at != track.steps.end() && at->second.training;
    });
    if (all) steps.push_back(step);
  }
  return steps;
}

}  // namespace

void CompareTimes(const Ranks& ranks, finding::Document& document) {
  if (ranks.tracks.size() < 2) return;
  std::vector<uint64_t> steps = CommonSteps(ranks);
  if (steps.size() < kFewest) return;
  std::vector<Figures> all, early, late;
  for (const RankTrack& track : ranks.tracks) {
    all.push_back(FiguresOf(track, steps, 0, steps.size()));
    early.push_back(FiguresOf(track, steps, 0, steps.size() / 2));
    late.push_back(FiguresOf(track, steps, steps.size() / 2, steps.size()));
  }
  auto least = [](const std::vector<Figures>& of) {
    return *std::min_element(of.begin(), of.end(), [](const auto& a, const auto& b) { return a.own < b.own; });
  };
  Figures best = least(all);
  // Ranks that do not wait for each other are no job of equal steps.
  bool together = std::any_of(all.begin(), all.end(), [](const Figures& f) { return f.collective > 0; });
  for (size_t i = 0; together && i < all.size(); ++i) {
    double excess = all[i].own - best.own;
    bool slow = best.own < kScore * all[i].own && least(early).own < kScore * early[i].own && least(late).own < kScore * late[i].own;
    double quiet = best.quiet;
    for (const Figures& figures : all) quiet = std::min(quiet, figures.quiet);
    slow = slow && quiet < kScore * all[i].quiet && all[i].quiet - quiet > 0.5 * excess;
    if (!slow || excess < kLeastSeconds || excess < kLeastShare * all[i].seconds) continue;
    bool data = all[i].data - best.data > 0.5 * excess;
    double score = best.own / all[i].own;
    int rank = ranks.tracks[i].rank;
    finding::Finding out = RankFinding(
        "LT613",
        fmt::format("rank {} is a straggler (score {:.2f}): its own work takes {} a step, the fastest rank's {}; the time goes into {} ({} against {}), and "
                    "the others wait for it ({} steps compared)",
                    rank, score, FormatDuration(all[i].own), FormatDuration(best.own), data ? "waiting for its data" : "compute",
                    FormatDuration(data ? all[i].data : all[i].compute), FormatDuration(data ? best.data : best.compute), steps.size()),
        fmt::format("rank {} 拖慢整个训练（得分 {:.2f}）：自身每步耗时 {}，最快的为 {}；时间花在{}", rank, score, FormatDuration(all[i].own),
                    FormatDuration(best.own), data ? "等待数据" : "计算"),
        data ? "look at this rank's storage and workers: num_workers, the node's disk or network, a larger share of slow samples"
             : "look for work under `if rank == ...` (logging, saving, metrics), a slower or throttled device, other programs on its node, longer samples",
        data ? "检查该 rank 的存储与 num_workers、节点的磁盘或网络" : "检查 `if rank == ...` 下的额外工作、设备降频、节点上的其他程序或更长的样本",
        fmt::format("straggler {}", rank));
    out.evidence = {{"score", score, ""}, {"own_time", all[i].own, "s"}, {"fastest_own_time", best.own, "s"}, {"data_wait", all[i].data, "s"},
                    {"compute", all[i].compute, "s"}, {"collective_wait", all[i].collective, "s"}, {"step_time", all[i].seconds, "s"}};
    document.findings.push_back(std::move(out));
  }
}

}  // namespace lowtide::cli
