#pragma once

#include <cstddef>
#include <span>

#include "series/blocks.h"

namespace lowtide::series {

// The length of the repeating pattern in `samples` (gradient accumulation, bucket cycles): the first peak
// above 0.5 of the detrended autocorrelation. 0 when there is none up to a third of the samples.
size_t EstimatePeriod(std::span<const Sample> samples);

// Longer patterns are left to the autocorrelation of blocks: a block must stay short against the run.
inline constexpr size_t kLongestPeriod = 24;

// Samples per base block: 4, or the smallest multiple of the period that is at least 4.
size_t BaseBlockLength(size_t period);

}  // namespace lowtide::series
