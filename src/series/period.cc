#include "series/period.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "series/trend.h"

namespace lowtide::series {

size_t EstimatePeriod(std::span<const Sample> samples) {
  size_t n = samples.size();
  if (n < 24) return 0;
  if (std::all_of(samples.begin(), samples.end(), [&](const Sample& sample) { return sample.value == samples[0].value; })) return 0;
  std::vector<double> x(n), y(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i), y[i] = samples[i].value;
  auto r = Residuals(x, y, LeastSquares(x, y));
  double c0 = 0;
  for (double v : r) c0 += v * v;
  if (c0 <= 0) return 0;
  size_t longest = n / 3 - 1;
  std::vector<double> rho(longest + 2);
  for (size_t k = 1; k < rho.size(); ++k) {
    double sum = 0;
    for (size_t i = k; i < n; ++i) sum += r[i] * r[i - k];
    rho[k] = sum / c0 * static_cast<double>(n) / static_cast<double>(n - k);
  }
  bool fell = false;  // a slow drift starts high and never comes back: a period is a second rise
  for (size_t k = 1; k <= longest; ++k) {
    fell |= rho[k] < 0.3;
    if (!fell && k > 1 && rho[k] > rho[k - 1]) fell = true;
    if (k >= 2 && fell && rho[k] > 0.5 && rho[k] >= rho[k - 1] && rho[k] >= rho[k + 1]) return k;
  }
  return 0;
}

size_t BaseBlockLength(size_t period) {
  if (period < 2 || period > kLongestPeriod || 4 % period == 0) return 4;
  size_t length = period;
  while (length < 4) length += period;
  return length;
}

}  // namespace lowtide::series
