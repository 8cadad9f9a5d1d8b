#include "verdict/gap.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lowtide::verdict {

void GapWatch::Add(double step, double reserved, double used) {
  if (!std::isfinite(reserved) || !std::isfinite(used)) return;
  running_peak_ = std::max(running_peak_, used);
  last_ = {step, reserved - running_peak_, reserved};
  if (count_++ % stride_) return;
  if (size_ == kKept) {
    for (size_t i = 0; i < kKept / 2; ++i) {
      kept_[i] = kept_[2 * i];
      kept_[i].gap = std::min(kept_[i].gap, kept_[2 * i + 1].gap);
    }
    size_ = kKept / 2, stride_ *= 2;
    if ((count_ - 1) % stride_) return;
  }
  kept_[size_++] = last_;
}

std::optional<GapFigures> GapWatch::Fragmented() const {
  std::vector<Reading> r(kept_, kept_ + size_);
  if (r.size() < 16) return std::nullopt;
  if (r.back().step != last_.step) r.push_back(last_);
  double first = r.front().step, span = r.back().step - first;
  size_t warm = 0;  // 200 steps, but at most a fifth of the run
  while (warm < r.size() / 5 && r[warm].step - first < 200) ++warm;
  size_t n = r.size();
  std::vector<double> floor(n);  // smallest gap from here on
  floor[n - 1] = r[n - 1].gap;
  for (size_t i = n - 1; i-- > warm;) floor[i] = std::min(r[i].gap, floor[i + 1]);
  GapFigures out;
  double growth = floor[n - 1] - floor[warm], largest = 0, first_third = 0, last_third = 0,
         begin = r[warm].step;
  double third = (r[n - 1].step - begin) / 3;
  for (size_t i = warm + 1; i < n; ++i) {
    double rise = floor[i] - floor[i - 1];
    if (rise <= 0) continue;
    out.rises += rise >= 2 * 1024 * 1024;
    largest = std::max(largest, rise);
    if (r[i].step <= begin + third) first_third += rise;
    if (r[i].step > begin + 2 * third) last_third += rise;
  }
  out.reserved = last_.reserved, out.peak = running_peak_, out.gap = last_.gap, out.growth = growth;
  out.growth_per_step = span > 0 ? growth / (r[n - 1].step - begin) : 0;
  bool yes = out.gap >= 0.1 * out.reserved && growth >= 0.05 * out.reserved && out.rises >= 6 &&
             largest <= 0.5 * growth && last_third >= 0.12 * growth && first_third >= 0.03 * growth;
  return yes ? std::optional(out) : std::nullopt;
}

}  // namespace lowtide::verdict
