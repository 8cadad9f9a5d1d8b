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

using Step = RankTrack::Step;

Figures FiguresOf(const Step* begin, const Step* end) {
  std::vector<double> seconds, data, collective, compute, own;
  for (auto* of : {&seconds, &data, &collective, &compute, &own}) of->reserve(static_cast<size_t>(end - begin));
  for (; begin != end; ++begin) {
    seconds.push_back(begin->seconds), data.push_back(begin->data), collective.push_back(begin->collective);
    compute.push_back(begin->compute()), own.push_back(begin->own());
  }
  return {Median(seconds), Median(data), Median(collective), Median(compute), Median(own), Quantile(own, 1)};
}

bool Counts(const Step& step) { return step.number > kWarmUp && step.training; }

// Keeps of `steps` those whose numbers are in `others`, both in order.
void Intersect(std::vector<uint64_t>& steps, const std::vector<Step>& others) {
  size_t kept = 0;
  auto at = others.begin();
  for (uint64_t step : steps) {
    while (at != others.end() && at->number < step) ++at;
    if (at == others.end()) break;
    if (at->number == step && Counts(*at)) steps[kept++] = step;
  }
  steps.resize(kept);
}

// Of each rank the training steps that all ranks have.
std::vector<std::vector<Step>> CommonSteps(const Ranks& ranks) {
  std::vector<uint64_t> numbers;
  for (const Step& step : ranks.tracks[0].steps) {
    if (Counts(step)) numbers.push_back(step.number);
  }
  for (const RankTrack& track : ranks.tracks) Intersect(numbers, track.steps);
  std::vector<std::vector<Step>> common;
  for (const RankTrack& track : ranks.tracks) {
    std::vector<Step>& steps = common.emplace_back();
    steps.reserve(numbers.size());
    auto at = track.steps.begin();
    for (uint64_t number : numbers) {
      while (at->number != number) ++at;
      steps.push_back(*at);
    }
  }
  return common;
}

// Whether the middle step of these waits for other ranks.
bool Waits(const std::vector<Step>& steps) {
  const auto waiting = static_cast<size_t>(std::count_if(steps.begin(), steps.end(), [](const Step& step) { return step.collective > 0; }));
  return waiting >= steps.size() - steps.size() / 2;
}

}  // namespace

void CompareTimes(const Ranks& ranks, finding::Document& document) {
  if (ranks.tracks.size() < 2) return;
  const auto common = CommonSteps(ranks);
  const size_t count = common[0].size();
  if (count < kFewest) return;
  // Ranks that do not wait for each other are no job of equal steps.
  if (std::none_of(common.begin(), common.end(), Waits)) return;
  std::vector<Figures> all, early, late;
  for (const auto& steps : common) {
    const Step *begin = steps.data(), *middle = begin + count / 2, *end = begin + count;
    all.push_back(FiguresOf(begin, end));
    early.push_back(FiguresOf(begin, middle));
    late.push_back(FiguresOf(middle, end));
  }
  auto least = [](const std::vector<Figures>& of) {
    return *std::min_element(of.begin(), of.end(), [](const auto& a, const auto& b) { return a.own < b.own; });
  };
  Figures best = least(all);
  for (size_t i = 0; i < all.size(); ++i) {
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
                    FormatDuration(data ? all[i].data : all[i].compute), FormatDuration(data ? best.data : best.compute), count),
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
