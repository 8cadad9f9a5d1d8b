#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "verdict/shape_window.h"

namespace lowtide::verdict {

// Growth by increments of random size (a leak of variable batches, events at random) is a walk with drift:
// its residuals about a line wander, and curves would seem to fit them. So the increments are described
// instead, by a constant mean, by none, by one that stops, and by one that fades. Both views are densities of
// the same values.
void FitWalks(const Window& w, double z_critical, Fit& growing, Fit& bounded, Fit& slow) {
  size_t n = w.size(), m = n - 1;
  std::vector<double> d(m), dt(m);
  double floor = 2 * w.floor(), size = static_cast<double>(m);
  for (size_t i = 0; i < m; ++i) d[i] = w.y(i + 1) - w.y(i), dt[i] = w.t(i + 1) - w.t(i);
  // The first value is a parameter that describes itself: n terms, as the other shapes have, and one
  // parameter more.
  auto bic = [&](double rss, double k) {
    return (size + 1) * std::log(std::max(rss / size, floor)) + (k + 1) * std::log(size + 1);
  };
  // Increments proportional to dt * shape(t); rss and the coefficient.
  auto fit = [&](auto shape) {
    double ff = 0, fd = 0, dd = 0;
    for (size_t i = 0; i < m; ++i) {
      double f = dt[i] * shape(i);
      ff += f * f, fd += f * d[i], dd += d[i] * d[i];
    }
    double rss = ff > 0 ? std::max(0.0, dd - fd * fd / ff) : dd;
    return std::array<double, 3>{rss, ff > 0 ? fd / ff : 0,
                                 ff > 0 ? std::sqrt(std::max(rss / size, floor) / ff) : 0};
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

}  // namespace lowtide::verdict
