// What is shown of a rank's pools: their newest values, and series thinned as they come.
#include <algorithm>

#include "cli/judge.h"

namespace lowtide::cli {
namespace {

constexpr size_t kShownPoints = 512;

using Points = std::vector<report::SeriesView::Point>;

// `each` points made one: the first one's step, the largest value, the lowest edge.
Points Merged(const Points& points, size_t each) {
  if (each == 1) return points;
  Points merged;
  merged.reserve(points.size() / each + 1);
  for (size_t i = 0; i < points.size(); ++i) {
    if (i % each == 0) {
      merged.push_back(points[i]);
      continue;
    }
    merged.back().value = std::max(merged.back().value, points[i].value);
    merged.back().low = std::min(merged.back().low, points[i].low);
  }
  return merged;
}

}  // namespace

void RankJudge::Show(Pool& pool, uint64_t step, double value) {
  pool.now = value;
  if (!pool.shown.empty() && step < pool.shown.back().step + pool.stride) {
    pool.shown.back().value = std::max(pool.shown.back().value, value);
    pool.shown.back().low = std::min(pool.shown.back().low, value);
    return;
  }
  pool.shown.push_back({step, value, value});
  if (pool.shown.size() < 2 * kShownPoints) return;
  for (size_t i = 0; i < kShownPoints; ++i) {
    const auto &a = pool.shown[2 * i], &b = pool.shown[2 * i + 1];
    pool.shown[i] = {a.step, std::max(a.value, b.value), std::min(a.low, b.low)};
  }
  pool.shown.resize(kShownPoints);
  pool.stride *= 2;
}

std::map<std::string, RankJudge::Level> RankJudge::Now() const {
  std::map<std::string, Level> levels;
  for (const auto& [name, pool] : pools_) {
    if (name == "python" || name == "rest") continue;
    Level level{pool.now, pool.now};
    size_t stretch = std::max<size_t>(8, pool.shown.size() / 16);
    for (size_t i = pool.shown.size() - std::min(stretch, pool.shown.size()); i < pool.shown.size(); ++i) {
      level.floor = std::min(level.floor, pool.shown[i].low);
    }
    levels[name] = level;
  }
  return levels;
}

std::vector<report::SeriesView> RankJudge::Series(size_t most) const {
  std::vector<report::SeriesView> views;
  for (const auto& [name, pool] : pools_) {
    if (name == "python" || name == "rest") continue;
    report::SeriesView view{name, rank_, Merged(pool.shown, std::max<size_t>(1, pool.shown.size() / most)), pool.capacity, pool.now};
    // The lower edge: what later steps never went below.
    for (size_t i = view.points.size(); i-- > 1;) {
      view.points[i - 1].low = std::min(view.points[i - 1].low, view.points[i].low);
    }
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace lowtide::cli
