#include "series/trend.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lowtide::series {

double UpperNormalTail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

double UpperNormalQuantile(double p) {
  if (p >= 1) return -40;
  if (p <= 1e-300) return 37;
  if (p > 0.5) return -UpperNormalQuantile(1 - p);
  double t = std::sqrt(-2 * std::log(p));  // Hastings' start, then Newton on the tail
  double z =
      t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  for (int i = 0; i < 3; ++i) {
    double density = std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
    if (density <= 0) break;
    z += (UpperNormalTail(z) - p) / density;
  }
  return z;
}

namespace {

double MedianInPlace(std::vector<double>& values) {
  if (values.empty()) return 0;
  auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

double MedianOf(std::vector<double> values) { return MedianInPlace(values); }

double MadSigma(std::span<const double> values) {
  std::vector<double> work(values.begin(), values.end());
  double median = MedianInPlace(work);
  for (auto& v : work) v = std::abs(v - median);
  return 1.4826 * MedianInPlace(work);
}

Line TheilSen(std::span<const double> x, std::span<const double> y) {
  static thread_local std::vector<double> slopes;
  slopes.clear();
  for (size_t i = 0; i < y.size(); ++i)
    for (size_t j = i + 1; j < y.size(); ++j)
      if (x[j] != x[i]) slopes.push_back((y[j] - y[i]) / (x[j] - x[i]));
  Line line;
  line.slope = MedianInPlace(slopes);
  slopes.clear();
  for (size_t i = 0; i < y.size(); ++i) slopes.push_back(y[i] - line.slope * x[i]);
  line.intercept = MedianInPlace(slopes);
  return line;
}

Line LeastSquares(std::span<const double> x, std::span<const double> y) {
  double n = static_cast<double>(y.size()), mx = 0, my = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < y.size(); ++i) mx += x[i] / n, my += y[i] / n;
  for (size_t i = 0; i < y.size(); ++i) sxx += (x[i] - mx) * (x[i] - mx), sxy += (x[i] - mx) * (y[i] - my);
  Line line;
  line.slope = sxx > 0 ? sxy / sxx : 0;
  line.intercept = my - line.slope * mx;
  return line;
}

double MannKendall::Z(double vif) const {
  if (variance <= 0) return 0;
  double corrected = s > 0 ? s - 1 : s < 0 ? s + 1 : 0;
  return corrected / std::sqrt(variance * vif);
}

namespace {

// Pairs (i, j), i < j, with y[i] > y[j]; leaves y sorted (Knight's method, JASA 61, 1966).
uint64_t SortCountingFalls(std::span<double> y, std::span<double> scratch) {
  if (y.size() <= 16) {
    uint64_t falls = 0;
    for (size_t i = 1; i < y.size(); ++i) {
      const double value = y[i];
      size_t at = i;
      for (; at > 0 && y[at - 1] > value; --at) y[at] = y[at - 1];
      y[at] = value;
      falls += i - at;
    }
    return falls;
  }
  const size_t half = y.size() / 2;
  uint64_t falls = SortCountingFalls(y.first(half), scratch.first(half)) + SortCountingFalls(y.subspan(half), scratch.subspan(half));
  size_t left = 0, right = half, out = 0;
  while (left < half && right < y.size()) {
    const bool fall = y[left] > y[right];
    if (fall) falls += half - left;
    scratch[out++] = fall ? y[right++] : y[left++];
  }
  std::copy(y.begin() + static_cast<ptrdiff_t>(left), y.begin() + static_cast<ptrdiff_t>(half), scratch.begin() + static_cast<ptrdiff_t>(out));
  std::copy(scratch.begin(), scratch.begin() + static_cast<ptrdiff_t>(right), y.begin());
  return falls;
}

}  // namespace

MannKendall MannKendallOf(std::span<const double> y) {
  MannKendall out;
  static thread_local std::vector<double> sorted, scratch;
  sorted.assign(y.begin(), y.end());
  scratch.resize(y.size());
  const double falls = static_cast<double>(SortCountingFalls(sorted, scratch));
  const double n = static_cast<double>(y.size());
  double ties = 0;
  out.variance = n * (n - 1) * (2 * n + 5) / 18;
  for (size_t i = 0; i < sorted.size();) {
    size_t j = i;
    while (j < sorted.size() && sorted[j] == sorted[i]) ++j;
    double t = static_cast<double>(j - i);
    out.variance -= t * (t - 1) * (2 * t + 5) / 18;
    ties += t * (t - 1) / 2;
    i = j;
  }
  out.s = n * (n - 1) / 2 - ties - 2 * falls;
  return out;
}

double VarianceInflation(std::span<const double> residuals, double noise_floor) {
  size_t n = residuals.size();
  if (n < 8) return 1;
  double sigma = MadSigma(residuals);
  std::vector<double> r(residuals.begin(), residuals.end());
  double limit = 4 * std::max(sigma, noise_floor), mean = 0;
  for (auto& v : r) v = std::clamp(v, -limit, limit), mean += v / static_cast<double>(n);
  double c0 = 0;
  for (auto& v : r) v -= mean, c0 += v * v;
  if (std::sqrt(c0 / static_cast<double>(n)) < noise_floor || c0 <= 0) return 1;
  double vif = 1, size = static_cast<double>(n);
  for (size_t k = 1; k < n / 2; ++k) {
    double ck = 0;
    for (size_t i = k; i < n; ++i) ck += r[i] * r[i - k];
    double rho = ck / c0 + 1 / size;  // the bias of a sample autocorrelation
    if (rho <= (k == 1 ? 0.1 : 0.05)) break;
    vif += 2 * rho * (1 - static_cast<double>(k) / size) * (1 + 4 / size);
  }
  return std::clamp(vif, 1.0, size / 3);
}

double FlickerOf(std::span<const double> values) {
  if (values.size() < 3) return 0;
  std::vector<double> differences(values.size() - 1);
  for (size_t i = 0; i + 1 < values.size(); ++i) differences[i] = values[i + 1] - values[i];
  return MadSigma(differences) / std::sqrt(2.0);
}

double RatchetPValue(std::span<const double> minima, double tolerance) {
  if (minima.size() < 2) return 1;
  double after = minima.back();
  int up = 0, down = 0;
  for (size_t i = minima.size() - 1; i-- > 0;) {
    up += minima[i] < after - tolerance;
    down += minima[i] > after + tolerance;
    after = std::min(after, minima[i]);
  }
  int n = up + down;
  if (up <= down) return 1;  // 0.5 at least: of no interest
  // P(Bin(n, 1/2) >= up), from the top down.
  double term = std::exp(-n * M_LN2), p = term;
  for (int k = n; k > up; --k) p += term *= static_cast<double>(k) / (n - k + 1);
  return std::min(1.0, p);
}

std::vector<double> Residuals(std::span<const double> x, std::span<const double> y, const Line& line) {
  std::vector<double> out(y.size());
  for (size_t i = 0; i < y.size(); ++i) out[i] = y[i] - line.At(x[i]);
  return out;
}

Slope SlopeOf(std::span<const double> x, std::span<const double> y, double noise_floor) {
  Slope out;
  if (y.size() < 3) return out;
  Line line = TheilSen(x, y);
  auto residuals = Residuals(x, y, line);
  out.value = line.slope;
  out.sigma = std::max(MadSigma(residuals), noise_floor);
  out.vif = VarianceInflation(residuals, noise_floor);
  double n = static_cast<double>(y.size()), mx = 0, sxx = 0;
  for (double v : x) mx += v / n;
  for (double v : x) sxx += (v - mx) * (v - mx);
  if (sxx > 0) out.error = out.sigma * std::sqrt(out.vif / sxx);
  return out;
}

}  // namespace lowtide::series
