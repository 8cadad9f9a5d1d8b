#include "verdict/shape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "series/trend.h"

namespace lowtide::verdict {

bool IsGrowing(Shape shape) { return shape >= Shape::kLine && shape <= Shape::kDrift; }
bool IsSlowing(Shape shape) {
  return shape == Shape::kPlateau || shape == Shape::kSaturation || shape == Shape::kRoot || shape == Shape::kLogarithm ||
         shape == Shape::kDriftEnds;
}

namespace {

// One window under study: x scaled to 0..1, running sums for the residuals of any segment in constant time.
class Window {
 public:
  Window(std::span<const double> x, std::span<const double> y, double noise_floor)
      : n_(y.size()), span_(x.back() - x.front()), floor_(noise_floor * noise_floor), y_(y.begin(), y.end()) {
    base_ = y[0];
    t_.resize(n_);
    for (auto* sums : {&st_, &sy_, &stt_, &sty_, &syy_}) sums->assign(n_ + 1, 0);
    for (size_t i = 0; i < n_; ++i) {
      double t = t_[i] = (x[i] - x[0]) / span_, v = y_[i] -= base_;
      st_[i + 1] = st_[i] + t, sy_[i + 1] = sy_[i] + v, stt_[i + 1] = stt_[i] + t * t;
      sty_[i + 1] = sty_[i] + t * v, syy_[i + 1] = syy_[i] + v * v;
    }
  }

  size_t size() const { return n_; }
  double span() const { return span_; }
  double t(size_t i) const { return t_[i]; }
  double y(size_t i) const { return y_[i]; }
  double Mean(size_t a, size_t b) const { return (sy_[b] - sy_[a]) / static_cast<double>(b - a); }
  // Sums about the mean of [a, b).
  double Yy(size_t a, size_t b) const {
    double s = sy_[b] - sy_[a];
    return std::max(0.0, syy_[b] - syy_[a] - s * s / static_cast<double>(b - a));
  }
  double Tt(size_t a, size_t b) const {
    double s = st_[b] - st_[a];
    return std::max(0.0, stt_[b] - stt_[a] - s * s / static_cast<double>(b - a));
  }
  double Ty(size_t a, size_t b) const {
    return sty_[b] - sty_[a] - (st_[b] - st_[a]) * (sy_[b] - sy_[a]) / static_cast<double>(b - a);
  }
  double Bic(double rss, double parameters) const {
    double n = static_cast<double>(n_);
    return n * std::log(std::max(rss / n, floor_)) + parameters * std::log(n);
  }
  double floor() const { return floor_; }

  // y = a + b f(t) by least squares.
  struct Basis {
    double rss = 1e300, slope = 0, error = 0;
  };
  template <typename F>
  Basis FitBasis(F f) const {
    double sf = 0, sff = 0, sfy = 0, n = static_cast<double>(n_);
    for (size_t i = 0; i < n_; ++i) {
      double v = f(t_[i]);
      sf += v, sff += v * v, sfy += v * y_[i];
    }
    double vff = sff - sf * sf / n, vfy = sfy - sf * sy_[n_] / n;
    Basis out;
    if (vff <= 1e-12) return out;
    out.slope = vfy / vff;
    out.rss = std::max(0.0, Yy(0, n_) - vfy * vfy / vff);
    out.error = std::sqrt(std::max(out.rss / n, floor_) / vff);
    return out;
  }

 private:
  size_t n_;
  double span_, floor_, base_ = 0;
  std::vector<double> y_, t_, st_, sy_, stt_, sty_, syy_;
};

// The smallest of `cost` near `at`, by golden section over +- `reach`: a knee between two readings must not cost an exact
// series its exactness.
template <typename F>
double Refine(double at, double reach, F cost) {
  constexpr double kGolden = 0.6180339887498949;
  double a = std::max(1e-6, at - reach), b = std::min(1 - 1e-6, at + reach);
  double c = b - kGolden * (b - a), d = a + kGolden * (b - a), fc = cost(c), fd = cost(d);
  for (int i = 0; i < 24; ++i) {
    if (fc < fd) b = d, d = c, fd = fc, c = b - kGolden * (b - a), fc = cost(c);
    else a = c, c = d, fc = fd, d = a + kGolden * (b - a), fd = cost(d);
  }
  return (a + b) / 2;
}

// The best smooth curve so far, for the residuals.
struct Curve {
  double bic = 1e300;
  std::vector<double> residuals;
};
template <typename F>
void KeepCurve(const Window& w, double bic, F f, Curve& best) {
  if (bic >= best.bic) return;
  best.bic = bic;
  size_t n = w.size();
  best.residuals.resize(n);
  double sf = 0, sy = 0, sff = 0, sfy = 0, size = static_cast<double>(n);
  for (size_t i = 0; i < n; ++i) {
    double v = f(w.t(i)), y = w.y(i);
    sf += v, sy += y, sff += v * v, sfy += v * y;
  }
  double vff = sff - sf * sf / size, slope = vff > 0 ? (sfy - sf * sy / size) / vff : 0;
  for (size_t i = 0; i < n; ++i) best.residuals[i] = w.y(i) - sy / size - slope * (f(w.t(i)) - sf / size);
}

void Keep(Fit& best, const Fit& fit) {
  if (fit.bic < best.bic) best = fit;
}

// --- growing ------------------------------------------------------------------------------------------------------

// A start that fades away (warm-up, first buffers) under a line: a + b t - c exp(-t / tau).
void FitSettled(const Window& w, double z_critical, Fit& best) {
  double n = static_cast<double>(w.size());
  for (double tau : {0.02, 0.04, 0.08}) {
    double f = 0, ff = 0, tf = 0, fy = 0, t = 0, tt = 0, ty = 0, y = 0, yy = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      double e = std::exp(-w.t(i) / tau), u = w.t(i), v = w.y(i);
      f += e, ff += e * e, tf += u * e, fy += v * e, t += u, tt += u * u, ty += u * v, y += v, yy += v * v;
    }
    ff -= f * f / n, tf -= t * f / n, fy -= f * y / n, tt -= t * t / n, ty -= t * y / n, yy -= y * y / n;
    double det = tt * ff - tf * tf;
    if (det <= 1e-12) continue;
    double slope = (ty * ff - fy * tf) / det, start = (fy * tt - ty * tf) / det;
    double rss = std::max(0.0, yy - slope * ty - start * fy), error = std::sqrt(std::max(rss / n, w.floor()) * ff / det);
    if (slope > z_critical * error) Keep(best, {Shape::kSettled, w.Bic(rss, 4), slope / w.span(), error / w.span(), tau, start, 0});
  }
}

// a + b t + c t^2, b and c positive: growth that began before the window and gathers speed.
void FitParabola(const Window& w, Fit& best) {
  double s[5] = {}, r[3] = {}, yy = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    double t = w.t(i) - 0.5, y = w.y(i), power = 1;
    for (int k = 0; k < 5; ++k, power *= t) {
      s[k] += power;
      if (k < 3) r[k] += power * y;
    }
    yy += y * y;
  }
  // Normal equations of order 3 by Cramer's rule.
  auto det = [](double a, double b, double c, double d, double e, double f, double g, double h, double i) {
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g);
  };
  double whole = det(s[0], s[1], s[2], s[1], s[2], s[3], s[2], s[3], s[4]);
  if (whole <= 1e-12) return;
  double a = det(r[0], s[1], s[2], r[1], s[2], s[3], r[2], s[3], s[4]) / whole;
  double b = det(s[0], r[0], s[2], s[1], r[1], s[3], s[2], r[2], s[4]) / whole;
  double c = det(s[0], s[1], r[0], s[1], s[2], r[1], s[2], s[3], r[2]) / whole;
  if (c <= 0 || b < c) return;  // b - c is the slope at the start
  double rss = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    double t = w.t(i) - 0.5, e = w.y(i) - a - b * t - c * t * t;
    rss += e * e;
  }
  double n = static_cast<double>(w.size()), sigma = std::sqrt(std::max(rss / n, w.floor()));
  Keep(best, {Shape::kConvex, w.Bic(rss, 3), (b + c) / w.span(), sigma * std::sqrt(180 / n) / w.span(), 0, 0, 0});
}

void FitConvexAndLine(const Window& w, Fit& best, Curve& curve) {
  auto line = w.FitBasis([](double t) { return t; });
  KeepCurve(w, w.Bic(line.rss, 2), [](double t) { return t; }, curve);
  if (line.slope > 0) Keep(best, {Shape::kLine, w.Bic(line.rss, 2), line.slope / w.span(), line.error / w.span(), 0, 0, 0});
  for (double power : {1.5, 2.0, 3.0}) {
    auto f = [=](double t) { return std::pow(t, power); };
    auto fit = w.FitBasis(f);
    KeepCurve(w, w.Bic(fit.rss, 3), f, curve);
    if (fit.slope > 0)
      Keep(best, {Shape::kConvex, w.Bic(fit.rss, 3), fit.slope * power / w.span(), fit.error * power / w.span(), 0, 0, 0});
  }
  FitParabola(w, best);
  size_t n = w.size();
  auto kneed = [&](double knee) { return w.FitBasis([=](double t) { return std::max(0.0, t - knee); }); };
  double best_knee = 0, best_rss = 1e300;
  for (size_t c = 2; c + 4 < n && w.t(c) <= 0.85; c += std::max<size_t>(1, n / 32)) {
    auto fit = kneed(w.t(c));
    if (fit.slope > 0 && fit.rss < best_rss) best_rss = fit.rss, best_knee = w.t(c);
  }
  if (best_rss == 1e300) return;
  double knee = Refine(best_knee, 1.0 / 32, [&](double at) { return kneed(at).rss; });
  auto fit = kneed(knee);
  KeepCurve(w, w.Bic(fit.rss, 3), [=](double t) { return std::max(0.0, t - knee); }, curve);
  if (fit.slope > 0) Keep(best, {Shape::kKnee, w.Bic(fit.rss, 3), fit.slope / w.span(), fit.error / w.span(), knee, 0, 0});
}

// One or two level shifts with a common slope between them.
void FitLineWithShifts(const Window& w, double z_critical, Fit& best) {
  size_t n = w.size(), stride = n > 80 ? 2 : 1;
  auto consider = [&](std::initializer_list<size_t> cuts) {
    double yy = 0, tt = 0, ty = 0;
    size_t from = 0;
    for (size_t cut : cuts) yy += w.Yy(from, cut), tt += w.Tt(from, cut), ty += w.Ty(from, cut), from = cut;
    yy += w.Yy(from, n), tt += w.Tt(from, n), ty += w.Ty(from, n);
    if (tt <= 0 || ty <= 0) return;
    double rss = std::max(0.0, yy - ty * ty / tt), size = static_cast<double>(n), slope = ty / tt;
    double error = std::sqrt(std::max(rss / size, w.floor()) / tt), shifts = static_cast<double>(cuts.size());
    if (slope < z_critical * error) return;
    Keep(best, {Shape::kLineWithShifts, w.Bic(rss, 2 + 2 * shifts) + 2, slope / w.span(), error / w.span(),
                w.t(*cuts.begin()), 0, static_cast<int>(cuts.size())});
  };
  for (size_t a = 3; a + 3 <= n; a += stride) {
    consider({a});
    for (size_t b = a + 3; b + 3 <= n; b += stride) consider({a, b});
  }
}

// --- level shifts -------------------------------------------------------------------------------------------------

// Least sum of squares by 1..most segments of constant level; cuts[k] are the starts of the segments after the first.
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

// Equal stairs at equal distances: what validations and epochs leave behind.
void FitRegularStairs(const Window& w, Fit& best) {
  for (int stairs = 5; stairs <= 24; ++stairs) {
    double width = 1.0 / stairs;
    if (static_cast<double>(w.size()) * width < 3) break;
    for (int phase = 0; phase < 8; ++phase) {
      double offset = width * phase / 8;
      auto fit = w.FitBasis([=](double t) { return std::floor((t + offset) / width); });
      if (fit.slope > 0)
        Keep(best, {Shape::kStairs, w.Bic(fit.rss, 4), fit.slope / width / w.span(), fit.error / width / w.span(), 0, 0, stairs});
    }
  }
}

// Rises that stand out, none falls: y = a + b * (rises so far). Cheap to describe where they come at equal distances
// (validations, epochs); by one parameter each where they come at random.
void FitEvents(const Window& w, Fit& best) {
  size_t n = w.size();
  std::vector<double> values(n), rises;
  for (size_t i = 0; i < n; ++i) values[i] = w.y(i);
  double threshold = 6 * std::max(std::sqrt(w.floor()), series::FlickerOf(values));
  std::vector<double> count(n, 0.0);
  for (size_t i = 1; i < n; ++i) {
    double d = values[i] - values[i - 1];
    if (d < -threshold) return;
    count[i] = count[i - 1] + (d > threshold);
    // A block that straddles the rise shows it in two parts.
    bool again = d > threshold && !rises.empty() && i >= 2 && values[i - 1] - values[i - 2] > threshold;
    if (again) count[i] -= 1, count[i - 1] -= 0.5;
    else if (d > threshold) rises.push_back(w.t(i));
  }
  if (rises.size() < 5 || rises.size() > n / 3) return;
  std::vector<double> gaps;
  for (size_t i = 1; i < rises.size(); ++i) gaps.push_back(rises[i] - rises[i - 1]);
  double typical = series::MedianOf(gaps), uneven = 0, late = 0;
  for (double gap : gaps) uneven = std::max(uneven, std::abs(gap - typical));
  for (double rise : rises) late += rise > 0.5;
  if (1 - rises.back() > std::max(2.5 * typical, 0.25) || late < 0.3 * static_cast<double>(rises.size())) return;
  double sc = 0, scc = 0, scy = 0, sy = 0, syy = 0, size = static_cast<double>(n);
  for (size_t i = 0; i < n; ++i)
    sc += count[i], scc += count[i] * count[i], scy += count[i] * values[i], sy += values[i], syy += values[i] * values[i];
  double vcc = scc - sc * sc / size, vcy = scy - sc * sy / size, vyy = syy - sy * sy / size;
  if (vcc <= 0 || vcy <= 0) return;
  double height = vcy / vcc, rss = std::max(0.0, vyy - vcy * vcy / vcc), rate = height / typical;
  bool regular = uneven <= std::max(0.4 * typical, 2.5 / size);
  if (!regular) rate = height * static_cast<double>(rises.size() - 1) / (rises.back() - rises.front());
  double error = regular ? 0.01 * rate : rate / std::sqrt(static_cast<double>(rises.size()));
  double parameters = regular ? 4 : 3 + static_cast<double>(rises.size());
  Keep(best, {Shape::kStairs, w.Bic(rss, parameters), rate / w.span(), error / w.span(), 0, height, static_cast<int>(rises.size())});
}

void FitLevels(const Window& w, Fit& growing, Fit& bounded) {
  auto levels = BestLevels(w, 9);
  size_t n = w.size();
  for (size_t k = 1; k <= 9 && k < n; ++k) {
    auto& cuts = levels[k].cuts;
    double bic = w.Bic(levels[k].rss, 2.0 * static_cast<double>(k) - 1);
    if (k <= 4) {
      Fit fit{k == 1 ? Shape::kConstant : Shape::kShifts, bic, 0, 0, 0, 0, static_cast<int>(k) - 1};
      for (size_t i = 0; i < cuts.size(); ++i) {
        double rise = w.Mean(cuts[i], i + 1 < cuts.size() ? cuts[i + 1] : n) - w.Mean(i ? cuts[i - 1] : 0, cuts[i]);
        if (std::abs(rise) > std::abs(fit.height)) fit.height = rise, fit.at = w.t(cuts[i]);
      }
      Keep(bounded, fit);
    } else if (k >= 6 && IsStaircase(w, cuts)) {
      double rise = w.Mean(cuts.back(), n) - w.Mean(0, cuts[0]);
      Keep(growing, {Shape::kStairs, bic, rise / w.span(), 0, 0, 0, static_cast<int>(k) - 1});
    }
  }
}

// --- bounded ------------------------------------------------------------------------------------------------------

void FitSaturating(const Window& w, double origin, Fit& best, Curve& curve) {
  size_t n = w.size();
  auto consider = [&](Shape shape, auto f, auto slope_at_end, double at, double parameters = 3) {
    auto fit = w.FitBasis(f);
    double bic = w.Bic(fit.rss, parameters);
    if (fit.slope <= 0) return;
    KeepCurve(w, bic, f, curve);
    Keep(best, {shape, bic, fit.slope * slope_at_end / w.span(), 0, at, 0, 0});
  };
  double best_knee = 0, best_rss = 1e300;
  auto rss_at = [&](double knee) { return w.FitBasis([=](double t) { return std::min(t, knee); }).rss; };
  for (size_t c = 4; c + 3 < n; c += std::max<size_t>(1, n / 32))
    if (double rss = rss_at(w.t(c)); rss < best_rss) best_rss = rss, best_knee = w.t(c);
  if (best_knee > 0) {
    double knee = std::min(Refine(best_knee, 1.0 / 32, rss_at), w.t(n - 3));
    consider(Shape::kPlateau, [=](double t) { return std::min(t, knee); }, 0.0, knee);
  }
  for (double tau : {0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.5})
    consider(Shape::kSaturation, [=](double t) { return 1 - std::exp(-t / tau); }, std::exp(-1 / tau) / tau, tau);
  for (double power : {0.35, 0.5, 0.65})
    consider(Shape::kRoot, [=](double t) { return std::pow(t, power); }, power, power);
  // From the run's start: what caches of items drawn at random do.
  double before = std::clamp(origin, 0.0, 10.0);
  for (double power : {0.35, 0.5, 0.65})
    consider(Shape::kRoot, [=](double t) { return std::pow(t + before, power); }, power * std::pow(1 + before, power - 1), power, 2.5);
  for (double c : {0.01, 0.03, 0.1, 0.3, 1.0})
    consider(Shape::kLogarithm, [=](double t) { return std::log1p(t / c); }, 1 / (1 + c), c);
}

// --- random walks -------------------------------------------------------------------------------------------------

// Growth by increments of random size (a leak of variable batches, events at random) is a walk with drift: its
// residuals about a line wander, and curves would seem to fit them. So the increments are described instead, by a
// constant mean, by none, by one that stops, and by one that fades. Both views are densities of the same values.
void FitWalks(const Window& w, double z_critical, Fit& growing, Fit& bounded, Fit& slow) {
  size_t n = w.size(), m = n - 1;
  std::vector<double> d(m), dt(m);
  double floor = 2 * w.floor(), size = static_cast<double>(m);
  for (size_t i = 0; i < m; ++i) d[i] = w.y(i + 1) - w.y(i), dt[i] = w.t(i + 1) - w.t(i);
  // The first value is a parameter that describes itself: n terms, as the other shapes have, and one parameter more.
  auto bic = [&](double rss, double k) { return (size + 1) * std::log(std::max(rss / size, floor)) + (k + 1) * std::log(size + 1); };
  // Increments proportional to dt * shape(t); rss and the coefficient.
  auto fit = [&](auto shape) {
    double ff = 0, fd = 0, dd = 0;
    for (size_t i = 0; i < m; ++i) {
      double f = dt[i] * shape(i);
      ff += f * f, fd += f * d[i], dd += d[i] * d[i];
    }
    double rss = ff > 0 ? std::max(0.0, dd - fd * fd / ff) : dd;
    return std::array<double, 3>{rss, ff > 0 ? fd / ff : 0, ff > 0 ? std::sqrt(std::max(rss / size, floor) / ff) : 0};
  };
  auto drift = fit([](size_t) { return 1.0; });
  if (drift[1] > z_critical * drift[2])
    Keep(growing, {Shape::kDrift, bic(drift[0], 1), drift[1] / w.span(), drift[2] / w.span(), 0, 0, 0});
  auto none = fit([](size_t) { return 0.0; });
  Keep(bounded, {Shape::kConstant, bic(none[0], 0), 0, 0, 0, 0, 0});
  for (size_t c = 4; c + 4 < m; c += std::max<size_t>(1, n / 32)) {
    auto ends = fit([=](size_t i) { return i < c ? 1.0 : 0.0; });
    if (ends[1] > 0) Keep(slow, {Shape::kDriftEnds, bic(ends[0], 2), 0, 0, w.t(c), 0, 0});
  }
  for (double tau : {0.1, 0.2, 0.3, 0.5, 0.8}) {
    auto fades = fit([&](size_t i) { return std::exp(-(w.t(i) + w.t(i + 1)) / 2 / tau); });
    if (fades[1] > 0) Keep(slow, {Shape::kDriftEnds, bic(fades[0], 2), 0, 0, tau, 0, 0});
  }
}

}  // namespace

ShapeResult FitShapes(std::span<const double> x, std::span<const double> y, double noise_floor, double z_critical,
                      double origin) {
  ShapeResult out;
  if (y.size() < 8 || x.back() <= x.front()) return out;
  Window w(x, y, noise_floor);
  Curve curve;
  FitConvexAndLine(w, out.growing, curve);
  FitRegularStairs(w, out.growing);
  FitEvents(w, out.growing);
  FitLineWithShifts(w, z_critical, out.growing);
  FitLevels(w, out.growing, out.bounded);
  FitSettled(w, z_critical, out.growing);
  FitSaturating(w, (x.front() - origin) / (x.back() - x.front()), out.slow, curve);
  out.residuals = std::move(curve.residuals);
  FitWalks(w, z_critical, out.growing, out.bounded, out.slow);
  Keep(out.bounded, out.slow);
  for (Fit* fit : {&out.growing, &out.bounded, &out.slow}) fit->at = x.front() + fit->at * (x.back() - x.front());
  return out;
}

}  // namespace lowtide::verdict
