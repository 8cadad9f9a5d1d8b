#pragma once

#include <span>
#include <vector>

// Robust statistics of a short series (a window of at most a few hundred blocks). x is a step, y bytes; sizes
// agree.
namespace lowtide::series {

// Upper quantile of the standard normal: P(Z > z) = p, for 1e-300 < p < 1 (Acklam's rational approximation
// with one Newton step; relative error below 1e-9 in the tails used here).
double UpperNormalQuantile(double p);
double UpperNormalTail(double z);  // P(Z > z)

double MedianOf(std::vector<double> values);  // 0 of nothing
// 1.4826 * median |v - median|: a standard deviation that outliers do not move.
double MadSigma(std::span<const double> values);

struct Line {
  double slope = 0;      // per unit of x
  double intercept = 0;  // at x = 0
  double At(double x) const { return intercept + slope * x; }
};

// Theil (1950), Sen (1968): the median of all pairwise slopes; intercept: the median of what is left.
Line TheilSen(std::span<const double> x, std::span<const double> y);
Line LeastSquares(std::span<const double> x, std::span<const double> y);

// Kendall's rank test against an upward trend, with the variance corrected for ties.
struct MannKendall {
  double s = 0, variance = 0;
  // Continuity-corrected, its variance inflated by `vif`; positive: upward.
  double Z(double vif = 1) const;
};
MannKendall MannKendallOf(std::span<const double> y);

// How much autocorrelation inflates the variance of a trend, after Hamed and Rao (1998): 1 + 2 sum rho_k
// (1-k/n)(1+4/n) over the residuals' autocorrelations (winsorised at 4 sigma) until they vanish; at most n/3,
// at least 1.
double VarianceInflation(std::span<const double> residuals, double noise_floor);

// P-value of "the floor only ratchets up": each value against the smallest that comes after it; under a
// symmetric random walk below and above are equally likely, so n+ of n is at most binomial(n, 1/2).
// Differences up to `tolerance` count as ties (rare rises among the flicker of an exact series).
double RatchetPValue(std::span<const double> minima, double tolerance = 0);
// What neighbours differ by, as a standard deviation of one value that neither trend nor rare jumps move.
double FlickerOf(std::span<const double> values);

std::vector<double> Residuals(std::span<const double> x, std::span<const double> y, const Line& line);

// A slope with what is known of it.
struct Slope {
  double value = 0;
  double error = 0;  // standard error, autocorrelation included
  double vif = 1;
  double sigma = 0;  // noise about the line
};
// Theil-Sen with the least-squares standard error of robust noise, floored at `noise_floor`.
Slope SlopeOf(std::span<const double> x, std::span<const double> y, double noise_floor);

}  // namespace lowtide::series
