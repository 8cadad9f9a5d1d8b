#pragma once

#include <span>
#include <vector>

namespace lowtide::verdict {

enum class Shape {
  kNone,
  // growing
  kLine,
  kConvex,
  kKnee /* flat, then line */,
  kStairs,
  kLineWithShifts,
  kSettled /* a start that fades, then line */,
  kDrift /* random walk with drift */,
  // bounded
  kConstant,
  kShifts,
  kPlateau /* line, then flat */,
  kSaturation /* exponential */,
  kRoot /* power < 1 */,
  kLogarithm,
  kDriftEnds /* random walk whose drift ends or fades */,
};
bool IsGrowing(Shape shape);
bool IsSlowing(Shape shape);  // plateau, saturation, root, logarithm, fading drift

struct Fit {
  Shape shape = Shape::kNone;
  double bic = 1e300;
  double slope = 0;   // bytes per unit of x: of the growing part, at the end
  double error = 0;   // of the slope, where it is one
  double at = 0;      // x of the knee, of the (largest) shift, or the time constant
  double height = 0;  // of the largest shift
  int rises = 0;      // stairs, shifts
};

// The best growing and the best bounded description of a window by the Bayesian information criterion. `x`
// strictly increasing, 8 values at least; `noise_floor` in bytes; `z_critical` is what a slope among level
// shifts must reach; `origin` is the x at which the run began (at or before x[0]): caches fill from there.
struct ShapeResult {
  Fit growing, bounded;
  Fit slow;                       // the best of the bounded ones that slow down
  std::vector<double> residuals;  // about the best smooth curve: what is noise, whatever the trend looks like
  bool grows() const { return growing.bic <= bounded.bic; }
  // By how much growth that slows down is the better description; negative: growth that goes on is.
  double SlowLead() const { return growing.bic - slow.bic; }
  // The bounded description is better by 10 and of a kind that slows down.
  bool slowing() const { return bounded.bic + 10 < growing.bic && IsSlowing(bounded.shape); }
};
ShapeResult FitShapes(std::span<const double> x, std::span<const double> y, double noise_floor,
                      double z_critical, double origin);

}  // namespace lowtide::verdict
