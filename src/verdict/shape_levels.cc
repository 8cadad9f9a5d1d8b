#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "series/trend.h"
#include "verdict/shape_window.h"

namespace lowtide::verdict {
namespace {

// Least sum of squares by 1..most segments of constant level; cuts[k] are the starts of the segments after
// the first.
struct Segments {
  double rss = 1e300;
  std::vector<size_t> cuts;
};
std::vector<Segments> BestLevels(const Window& w, size_t most) {
  size_t n = w.size();
  std::vector<std::vector<double>> cost(most + 1, std::vector<double>(n + 1, 1e300));
  std::vector<std::vector<uint16_t>> from(most + 1, std::vector<uint16_t>(n + 1, 0));
  for (size_t end = 1; end <= n; ++end) cost[1][end] = w.Yy(0, end);
  for (size_t k = 2; k <= most; ++k)
    for (size_t end = k; end <= n; ++end)
      for (size_t start = k - 1; start < end; ++start) {
        double c = cost[k - 1][start] + w.Yy(start, end);
        if (c < cost[k][end]) cost[k][end] = c, from[k][end] = static_cast<uint16_t>(start);
      }
  std::vector<Segments> out(most + 1);
  for (size_t k = 1; k <= most && k <= n; ++k) {
    out[k].rss = cost[k][n];
    size_t end = n;
    for (size_t j = k; j > 1; --j) out[k].cuts.insert(out[k].cuts.begin(), end = from[j][end]);
  }
  return out;
}

// A staircase of repeated rises and no fall is growth: rare events that each leave something behind.
bool IsStaircase(const Window& w, const std::vector<size_t>& cuts) {
  size_t n = w.size();
  double total = 0, largest = 0, second_half = 0, previous = w.Mean(0, cuts[0]);
  for (size_t i = 0; i < cuts.size(); ++i) {
    double level = w.Mean(cuts[i], i + 1 < cuts.size() ? cuts[i + 1] : n), rise = level - previous;
    if (rise <= 0) return false;
    total += rise, largest = std::max(largest, rise);
    if (w.t(cuts[i]) > 0.5) second_half += rise;
    previous = level;
  }
  return largest <= 0.5 * total && w.t(cuts.back()) > 0.6 && second_half >= 0.3 * total;
}

// False where something fell by more than the threshold.
bool FitEvents(const Window& w, const std::vector<double>& values, double threshold, Fit& best) {
  size_t n = w.size();
  std::vector<double> rises, count(n, 0.0);
  for (size_t i = 1; i < n; ++i) {
    double d = values[i] - values[i - 1];
    if (d < -threshold) return false;
    count[i] = count[i - 1] + (d > threshold);
    // A block that straddles the rise shows it in two parts.
    bool again = d > threshold && !rises.empty() && i >= 2 && values[i - 1] - values[i - 2] > threshold;
    if (again)
      count[i] -= 1, count[i - 1] -= 0.5;
    else if (d > threshold)
      rises.push_back(w.t(i));
  }
  if (rises.size() < 5 || rises.size() > n / 3) return true;
  std::vector<double> gaps;
  for (size_t i = 1; i < rises.size(); ++i) gaps.push_back(rises[i] - rises[i - 1]);
  double typical = series::MedianOf(gaps), uneven = 0, late = 0;
  for (double gap : gaps) uneven = std::max(uneven, std::abs(gap - typical));
  for (double rise : rises) late += rise > 0.5;
  if (1 - rises.back() > std::max(2.5 * typical, 0.25) || late < 0.3 * static_cast<double>(rises.size()))
    return true;
  double sc = 0, scc = 0, scy = 0, sy = 0, syy = 0, size = static_cast<double>(n);
  for (size_t i = 0; i < n; ++i)
    sc += count[i], scc += count[i] * count[i], scy += count[i] * values[i], sy += values[i],
        syy += values[i] * values[i];
  double vcc = scc - sc * sc / size, vcy = scy - sc * sy / size, vyy = syy - sy * sy / size;
  if (vcc <= 0 || vcy <= 0) return true;
  double height = vcy / vcc, rss = std::max(0.0, vyy - vcy * vcy / vcc), rate = height / typical;
  bool regular = uneven <= std::max(0.4 * typical, 2.5 / size);
  if (!regular) rate = height * static_cast<double>(rises.size() - 1) / (rises.back() - rises.front());
  double error = regular ? 0.01 * rate : rate / std::sqrt(static_cast<double>(rises.size()));
  double parameters = regular ? 4 : 3 + static_cast<double>(rises.size());
  Keep(best, {Shape::kStairs, w.Bic(rss, parameters), rate / w.span(), error / w.span(), 0, height,
              static_cast<int>(rises.size())});
  return true;
}

}  // namespace

// Equal stairs at equal distances: what validations and epochs leave behind.
void FitRegularStairs(const Window& w, Fit& best) {
  for (int stairs = 5; stairs <= 24; ++stairs) {
    double width = 1.0 / stairs;
    if (static_cast<double>(w.size()) * width < 3) break;
    for (int phase = 0; phase < 8; ++phase) {
      double offset = width * phase / 8;
      auto fit = w.FitBasis([=](double t) { return std::floor((t + offset) / width); });
      if (fit.slope > 0)
        Keep(best, {Shape::kStairs, w.Bic(fit.rss, 4), fit.slope / width / w.span(),
                    fit.error / width / w.span(), 0, 0, stairs});
    }
  }
}

// Rises that stand out, none falls: y = a + b * (rises so far). Cheap to describe where they come at equal
// distances (validations, epochs); by one parameter each where they come at random.
void FitEvents(const Window& w, Fit& best) {
  size_t n = w.size();
  std::vector<double> values(n);
  double largest = 0;
  for (size_t i = 0; i < n; ++i) {
    values[i] = w.y(i);
    if (i) largest = std::max(largest, values[i] - values[i - 1]);
  }
  double noise = 6 * std::max(std::sqrt(w.floor()), series::FlickerOf(values));
  // Where most blocks do not move at all, what counts as noise is next to nothing: then small against the rises.
  if (!FitEvents(w, values, noise, best) && 0.05 * largest > noise) FitEvents(w, values, 0.05 * largest, best);
}

void FitLevels(const Window& w, Fit& growing, Fit& bounded, size_t most) {
  auto levels = BestLevels(w, most);
  size_t n = w.size();
  for (size_t k = 1; k <= most && k < n; ++k) {
    auto& cuts = levels[k].cuts;
    double bic = w.Bic(levels[k].rss, 2.0 * static_cast<double>(k) - 1);
    if (k <= 4) {
      Fit fit{k == 1 ? Shape::kConstant : Shape::kShifts, bic, 0, 0, 0, 0, static_cast<int>(k) - 1};
      for (size_t i = 0; i < cuts.size(); ++i) {
        double rise =
            w.Mean(cuts[i], i + 1 < cuts.size() ? cuts[i + 1] : n) - w.Mean(i ? cuts[i - 1] : 0, cuts[i]);
        if (std::abs(rise) > std::abs(fit.height)) fit.height = rise, fit.at = w.t(cuts[i]);
      }
      Keep(bounded, fit);
    } else if (k >= 6 && IsStaircase(w, cuts)) {
      double rise = w.Mean(cuts.back(), n) - w.Mean(0, cuts[0]);
      Keep(growing, {Shape::kStairs, bic, rise / w.span(), 0, 0, 0, static_cast<int>(k) - 1});
    }
  }
}

}  // namespace lowtide::verdict
