#pragma once

#include <span>
#include <vector>

#include "series/blocks.h"
#include "series/trend.h"
#include "verdict/shape.h"

namespace lowtide::verdict {

// Why a window that chance cannot explain is no leak candidate.
enum class Gate { kNone, kLevelled, kFloorStays, kOldTerritory, kPeakGrowsMore, kShape };

struct WindowQuestion {
  double level = 1e-4;          // significance of each of the three tests
  double noise_floor = 0;       // bytes
  double history_max = -1e300;  // levels up to here are no news
  bool whole = false;           // the window is the whole run: what is new territory is judged inside it
  bool has_peak = true;
  double origin = 0;  // step at which the run began
};

struct WindowAnswer {
  bool watch = false;      // one of the tests says growth
  bool candidate = false;  // and every gate is passed
  Gate gate = Gate::kNone;
  double z = 0;  // Mann-Kendall on the lower edge, autocorrelation included
  double z_critical = 0;
  series::Slope slope;  // of the lower edge, bytes per step
  ShapeResult shape;
  double first = 0, last = 0;  // steps
  double start = 0, top = 0;   // lower edge at both ends
  bool shaped = false;         // `shape` was fitted
};

// The growth test of one window: T1 Mann-Kendall on the lower edge, T2 on the minima, T3 ratchet; then the
// gates: still rising, the floor agrees, new territory, the peak rises in parallel, the shape does not slow
// down. `screen`: stop early when not even uncorrelated noise could pass.
WindowAnswer TestWindow(std::span<const series::Block> blocks, const WindowQuestion& question,
                        bool screen = true);

// Takes out what came at once and went at once (a buffer that lived for a while, in the program or in what
// watches it): a rise between neighbours far beyond the flicker, and a later fall of the same size. At most
// four.
void TakeOutTemporary(std::vector<series::Block>& blocks, double noise_floor);

// What the run has given back already: the highest tooth that fell to where it began. Twice its height is
// what its successors may reach (collections grow rarer as a program grows). -1e300 when nothing ever came
// back.
double ReclaimedCeiling(std::span<const series::Block> blocks, double noise_floor);

// Whether the growth showed in the first two thirds already, and the last third goes on: the window is half
// as long again as the one that would have raised the suspicion.
bool Lasted(std::span<const series::Block> blocks, const WindowQuestion& question,
            const WindowAnswer& answer);

// The slope that the shape implies and its 95 % interval: Theil-Sen, the end of a convex rise, the part after
// a knee.
struct Rate {
  double value = 0, low = 0, high = 0, onset = 0;
};
Rate EstimateRate(std::span<const series::Block> blocks, const WindowAnswer& answer, double noise_floor);

}  // namespace lowtide::verdict
