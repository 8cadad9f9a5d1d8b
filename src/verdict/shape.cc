#include "verdict/shape.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "verdict/shape_window.h"

namespace lowtide::verdict {

bool IsGrowing(Shape shape) { return shape >= Shape::kLine && shape <= Shape::kDrift; }
bool IsSlowing(Shape shape) {
  return shape == Shape::kPlateau || shape == Shape::kSaturation || shape == Shape::kRoot ||
         shape == Shape::kLogarithm || shape == Shape::kDriftEnds;
}

namespace {

// The smallest of `cost` near `at`, by golden section over +- `reach`: a knee between two readings must not
// cost an exact series its exactness.
template <typename F>
double Refine(double at, double reach, F cost) {
  constexpr double kGolden = 0.6180339887498949;
  double a = std::max(1e-6, at - reach), b = std::min(1 - 1e-6, at + reach);
  double c = b - kGolden * (b - a), d = a + kGolden * (b - a), fc = cost(c), fd = cost(d);
  for (int i = 0; i < 24; ++i) {
    if (fc < fd)
      b = d, d = c, fd = fc, c = b - kGolden * (b - a), fc = cost(c);
    else
      a = c, c = d, fc = fd, d = a + kGolden * (b - a), fd = cost(d);
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
    double rss = std::max(0.0, yy - slope * ty - start * fy),
           error = std::sqrt(std::max(rss / n, w.floor()) * ff / det);
    if (slope > z_critical * error)
      Keep(best, {Shape::kSettled, w.Bic(rss, 4), slope / w.span(), error / w.span(), tau, start, 0});
  }
}

// a + b t + c t^2, b and c positive: growth that began before the window and gathers speed.
void FitParabola(const Window& w, Fit& best) {
  double s[5] = {}, r[3] = {};
  for (size_t i = 0; i < w.size(); ++i) {
    double t = w.t(i) - 0.5, y = w.y(i), power = 1;
    for (int k = 0; k < 5; ++k, power *= t) {
      s[k] += power;
      if (k < 3) r[k] += power * y;
    }
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
  Keep(best,
       {Shape::kConvex, w.Bic(rss, 3), (b + c) / w.span(), sigma * std::sqrt(180 / n) / w.span(), 0, 0, 0});
}

void FitConvexAndLine(const Window& w, Fit& best, Curve& curve) {
  auto line = w.FitBasis([](double t) { return t; });
  KeepCurve(
      w, w.Bic(line.rss, 2), [](double t) { return t; }, curve);
  if (line.slope > 0)
    Keep(best, {Shape::kLine, w.Bic(line.rss, 2), line.slope / w.span(), line.error / w.span(), 0, 0, 0});
  for (double power : {1.5, 2.0, 3.0}) {
    auto f = [=](double t) { return std::pow(t, power); };
    auto fit = w.FitBasis(f);
    KeepCurve(w, w.Bic(fit.rss, 3), f, curve);
    if (fit.slope > 0)
      Keep(best, {Shape::kConvex, w.Bic(fit.rss, 3), fit.slope * power / w.span(),
                  fit.error * power / w.span(), 0, 0, 0});
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
  KeepCurve(
      w, w.Bic(fit.rss, 3), [=](double t) { return std::max(0.0, t - knee); }, curve);
  if (fit.slope > 0)
    Keep(best, {Shape::kKnee, w.Bic(fit.rss, 3), fit.slope / w.span(), fit.error / w.span(), knee, 0, 0});
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
    consider(
        Shape::kPlateau, [=](double t) { return std::min(t, knee); }, 0.0, knee);
  }
  for (double tau : {0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.5})
    consider(
        Shape::kSaturation, [=](double t) { return 1 - std::exp(-t / tau); }, std::exp(-1 / tau) / tau, tau);
  for (double power : {0.35, 0.5, 0.65})
    consider(
        Shape::kRoot, [=](double t) { return std::pow(t, power); }, power, power);
  // From the run's start: what caches of items drawn at random do.
  double before = std::clamp(origin, 0.0, 10.0);
  for (double power : {0.35, 0.5, 0.65})
    consider(
        Shape::kRoot, [=](double t) { return std::pow(t + before, power); },
        power * std::pow(1 + before, power - 1), power, 2.5);
  for (double c : {0.01, 0.03, 0.1, 0.3, 1.0})
    consider(
        Shape::kLogarithm, [=](double t) { return std::log1p(t / c); }, 1 / (1 + c), c);
}

}  // namespace

ShapeResult FitShapes(std::span<const double> x, std::span<const double> y, double noise_floor,
                      double z_critical, double origin) {
  ShapeResult out;
  if (y.size() < 8 || x.back() <= x.front()) return out;
  Window w(x, y, noise_floor);
  Curve curve;
  FitConvexAndLine(w, out.growing, curve);
  const bool flat = std::all_of(y.begin(), y.end(), [&](double value) { return value == y[0]; });
  if (!flat) {
    FitRegularStairs(w, out.growing);
    FitEvents(w, out.growing);
    FitLineWithShifts(w, z_critical, out.growing);
  }
  FitLevels(w, out.growing, out.bounded, flat ? 1 : 9);
  FitSettled(w, z_critical, out.growing);
  FitSaturating(w, (x.front() - origin) / (x.back() - x.front()), out.slow, curve);
  out.residuals = std::move(curve.residuals);
  FitWalks(w, z_critical, out.growing, out.bounded, out.slow);
  Keep(out.bounded, out.slow);
  for (Fit* fit : {&out.growing, &out.bounded, &out.slow})
    fit->at = x.front() + fit->at * (x.back() - x.front());
  return out;
}

}  // namespace lowtide::verdict
