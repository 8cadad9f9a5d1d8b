#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "verdict/shape.h"

// What the fitters of one window share; internal to the shape test.
namespace lowtide::verdict {

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

inline void Keep(Fit& best, const Fit& fit) {
  if (fit.bic < best.bic) best = fit;
}

// Constant levels, stairs and events, regular or not.
void FitLevels(const Window& w, Fit& growing, Fit& bounded, size_t most = 9);  // `most` levels
void FitRegularStairs(const Window& w, Fit& best);
void FitEvents(const Window& w, Fit& best);
// Random walks, with and without drift.
void FitWalks(const Window& w, double z_critical, Fit& growing, Fit& bounded, Fit& slow);

}  // namespace lowtide::verdict
