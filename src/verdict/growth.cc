#include "verdict/growth.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lowtide::verdict {

using series::Block;
using series::Slope;

namespace {

constexpr double kCurveVif = 1.2;  // the price of having chosen the curve

struct Columns {
  std::vector<double> x, low, min, peak;
};

Columns Split(std::span<const Block> blocks) {
  Columns c;
  for (auto& b : blocks)
    c.x.push_back(b.Middle()), c.low.push_back(b.low), c.min.push_back(b.min), c.peak.push_back(b.peak);
  return c;
}

double RatchetOf(std::span<const double> minima, double noise_floor) {
  if (minima.back() <= minima.front()) return 1;
  double tolerance = 2 * std::max(noise_floor, series::FlickerOf(minima));
  return std::min(series::RatchetPValue(minima), series::RatchetPValue(minima, tolerance));
}

double MeanOf(std::span<const double> v) {
  double sum = 0;
  for (double y : v) sum += y;
  return v.empty() ? 0 : sum / static_cast<double>(v.size());
}

// The last part has not levelled off: its slope is significant, or a fair share of the whole slope.
bool StillRising(const Columns& c, const Slope& whole, double noise_floor) {
  size_t n = c.x.size(), from = n - std::max<size_t>(n / 3, 5);
  std::span x(c.x), y(c.low);
  Slope last = series::SlopeOf(x.subspan(from), y.subspan(from), noise_floor);
  if (last.value > 2 * last.error && last.value > 0.1 * whole.value) return true;
  if (last.value > 0.3 * whole.value) return true;
  // Stairs: between two rises the median slope is nothing, but the ends differ.
  size_t part = (n - from) / 3;
  double rise = MeanOf(y.subspan(n - part)) - MeanOf(y.subspan(from, part));
  return rise > 0.3 * whole.value * (x[n - 1] - x[from]) * 2 / 3 &&
         rise > 3 * whole.sigma / std::sqrt(static_cast<double>(part));
}

bool FloorAgrees(const Columns& c, const Slope& whole, double noise_floor) {
  Slope floor = series::SlopeOf(c.x, c.min, noise_floor);
  return floor.value > 0 && floor.value + 2.5 * floor.error >= 0.4 * whole.value;
}

bool NewTerritory(const Columns& c, const WindowQuestion& question, const Slope& whole) {
  size_t n = c.low.size(), part = std::min<size_t>(8, std::max<size_t>(2, n / 8));
  std::span y(c.low);
  double now = MeanOf(y.subspan(n - part));
  if (now <= question.history_max) return false;
  if (!question.whole) return true;
  double earlier = -1e300, slack = 2.5 * whole.sigma * std::sqrt(whole.vif / static_cast<double>(part));
  for (size_t i = 0; i + part <= n - part; i += part) earlier = std::max(earlier, MeanOf(y.subspan(i, part)));
  return now + slack > earlier;
}

// A leak lifts floor and peak by the same bytes; a workload that grows lifts the peak more.
bool PeakParallel(const Columns& c, const Slope& whole, double noise_floor) {
  Slope peak = series::SlopeOf(c.x, c.peak, noise_floor);
  return peak.value - 2 * peak.error <= 1.5 * (whole.value + whole.error);
}

Gate FirstClosedGate(const Columns& c, const WindowQuestion& q, WindowAnswer& a) {
  if (!StillRising(c, a.slope, q.noise_floor)) return Gate::kLevelled;
  if (!FloorAgrees(c, a.slope, q.noise_floor)) return Gate::kFloorStays;
  if (!NewTerritory(c, q, a.slope)) return Gate::kOldTerritory;
  if (q.has_peak && !PeakParallel(c, a.slope, q.noise_floor)) return Gate::kPeakGrowsMore;
  if (!a.shape.grows()) return Gate::kShape;
  return Gate::kNone;
}

}  // namespace

WindowAnswer TestWindow(std::span<const Block> blocks, const WindowQuestion& q, bool screen) {
  WindowAnswer a;
  if (blocks.size() < 8) return a;
  Columns c = Split(blocks);
  a.first = blocks.front().first, a.last = blocks.back().last;
  a.z_critical = series::UpperNormalQuantile(q.level);
  auto low = series::MannKendallOf(c.low), min = series::MannKendallOf(c.min);
  double ratchet = RatchetOf(c.min, q.noise_floor);
  bool possible = low.Z() > a.z_critical || min.Z() > a.z_critical || ratchet <= q.level;
  if (screen && !possible) {
    a.z = low.Z();
    return a;
  }
  a.slope = series::SlopeOf(c.x, c.low, q.noise_floor);
  series::Line floor_line = series::TheilSen(c.x, c.min);
  double min_vif = series::VarianceInflation(series::Residuals(c.x, c.min, floor_line), q.noise_floor),
         vif = a.slope.vif;
  size_t part = std::max<size_t>(2, blocks.size() / 16);
  a.start = MeanOf(std::span(c.low).first(part)), a.top = MeanOf(std::span(c.low).last(part));
  a.shape = FitShapes(c.x, c.low, q.noise_floor, a.z_critical, std::min(q.origin, c.x.front()));
  a.shaped = true;
  // A trend that bends leaves residuals about a line which look correlated; those about the best curve do
  // not.
  double curve_vif = kCurveVif * series::VarianceInflation(a.shape.residuals, q.noise_floor);
  vif = std::min(vif, curve_vif), min_vif = std::min(min_vif, std::max(curve_vif, vif));
  a.z = low.Z(vif);
  a.watch = a.z > a.z_critical || min.Z(min_vif) > a.z_critical || (ratchet <= q.level && low.s > 0);
  if (!a.watch) return a;
  a.gate = FirstClosedGate(c, q, a);
  a.candidate = a.gate == Gate::kNone;
  return a;
}

void TakeOutTemporary(std::vector<Block>& blocks, double noise_floor) {
  size_t n = blocks.size();
  if (n < 16) return;
  std::vector<double> y(n);
  for (int round = 0; round < 4; ++round) {
    for (size_t i = 0; i < n; ++i) y[i] = blocks[i].low;
    double least = 40 * std::max(series::FlickerOf(y), noise_floor), best = least;
    size_t from = 0, to = 0;
    // A change may take two blocks, the one that straddles it included.
    for (size_t i = 1; i + 2 < n; ++i) {
      double rise = y[std::min(i + 1, n - 1)] - y[i - 1];
      if (rise <= best) continue;
      for (size_t k = i + 2; k + 1 < n; ++k) {
        double fall = y[k - 1] - y[k + 1];
        if (std::abs(fall - rise) > 0.15 * rise) continue;
        best = rise, from = i, to = k;
        break;
      }
    }
    if (best <= least) return;
    double before = y[from - 1], after = y[std::min(to + 1, n - 1)];
    double inside_first = y[std::min(from + 1, to - 1)], inside_last = y[to - 1];
    // The level outside goes on from where it was at both ends; what happened inside is kept.
    double up = inside_first - before, down = inside_last - after;
    for (size_t i = from; i <= to; ++i) {
      double share = to > from ? static_cast<double>(i - from) / static_cast<double>(to - from) : 0,
             height = up + (down - up) * share;
      bool edge = i == from || i == to;
      for (double* v : {&blocks[i].low, &blocks[i].min, &blocks[i].peak}) *v -= edge ? 0 : height;
      if (edge) blocks[i].low = blocks[i].min = i == from ? before : after;
    }
  }
}

double ReclaimedCeiling(std::span<const Block> blocks, double noise_floor) {
  std::vector<double> y;
  for (size_t i = 0; i + 2 <= blocks.size(); ++i) y.push_back((blocks[i].low + blocks[i + 1].low) / 2);
  if (y.size() < 8) return -1e300;
  double flicker = std::max(series::FlickerOf(y), noise_floor), ceiling = -1e300;
  double floor = y[0], top = y[0], jump = 0, previous = y[0], before = y[0];
  for (double v : y) {
    // Means of two blocks show a jump in two parts.
    jump = std::max(jump, v - before);
    before = previous, previous = v;
    top = std::max(top, v);
    if (v < floor || (top - floor > 12 * flicker && v < floor + 0.3 * (top - floor))) {
      // It fell by most of the tooth's height, which is more than noise can be. What came at once and went at
      // once was a temporary block; a tooth grows.
      if (top - floor > 12 * flicker && jump < 0.6 * (top - floor))
        ceiling = std::max(ceiling, floor + 2 * (top - floor));
      floor = top = v, jump = 0;
    }
  }
  return ceiling;
}

bool Lasted(std::span<const Block> blocks, const WindowQuestion& q, const WindowAnswer& answer) {
  size_t early = blocks.size() * 2 / 3;
  if (early < 8) return false;
  Columns c = Split(blocks);
  std::span x(c.x), y(c.low);
  auto before = series::MannKendallOf(y.first(early));
  double vif = std::min(answer.slope.vif,
                        kCurveVif * series::VarianceInflation(answer.shape.residuals, q.noise_floor));
  bool shown =
      before.Z(vif) > answer.z_critical || RatchetOf(std::span(c.min).first(early), q.noise_floor) <= q.level;
  Slope late = series::SlopeOf(x.subspan(early), y.subspan(early), q.noise_floor);
  if (!shown) return false;
  if (late.value > 2 * late.error && late.value > 0.4 * answer.slope.value) return true;
  double rise = y.back() - y[early - 1], expected = answer.slope.value * (x.back() - x[early - 1]);
  bool walks = answer.shape.growing.shape == Shape::kDrift || answer.shape.growing.shape == Shape::kStairs;
  return walks && rise > 0.4 * expected;
}

namespace {

void Widen(Rate& rate, double low, double high) {
  rate.low = std::min(rate.low, low);
  rate.high = std::max(rate.high, high);
}

// The slopes of equal parts of the window belong to what the rate may be.
void WidenByParts(Rate& rate, const Columns& c, size_t from, size_t parts, double noise_floor) {
  size_t n = c.x.size() - from, each = n / parts;
  if (each < 5) return;
  for (size_t i = 0; i < parts; ++i) {
    std::span x(c.x), y(c.low);
    Slope part =
        series::SlopeOf(x.subspan(from + i * each, each), y.subspan(from + i * each, each), noise_floor);
    Widen(rate, part.value, part.value);
  }
}

}  // namespace

Rate EstimateRate(std::span<const Block> blocks, const WindowAnswer& answer, double noise_floor) {
  Columns c = Split(blocks);
  const Fit& fit = answer.shape.growing;
  Slope slope = answer.slope;
  Rate rate;
  rate.onset = answer.first;
  size_t from = 0;
  switch (fit.shape) {
    case Shape::kKnee: {
      while (from + 8 < c.x.size() && c.x[from] < fit.at) ++from;
      slope = series::SlopeOf(std::span(c.x).subspan(from), std::span(c.low).subspan(from), noise_floor);
      rate.onset = fit.at;
      break;
    }
    case Shape::kConvex:
    case Shape::kSettled:
    case Shape::kLineWithShifts:
    case Shape::kDrift:
    case Shape::kStairs:
      slope.value = fit.slope;
      slope.error = std::max(fit.error * std::sqrt(slope.vif), slope.error);
      break;
    default:
      break;
  }
  rate.value = slope.value;
  // The error cannot be trusted below half a percent: blocks have no sharp place in time.
  double error = std::hypot(2.2 * slope.error, 0.005 * slope.value);
  rate.low = slope.value - error, rate.high = slope.value + error;
  if (fit.shape == Shape::kConvex) {
    Widen(rate, answer.slope.value, answer.slope.value);
    return rate;
  }
  WidenByParts(rate, c, from, 2, noise_floor);
  if (slope.vif > 2.5) WidenByParts(rate, c, from, 4, noise_floor);
  return rate;
}

}  // namespace lowtide::verdict
