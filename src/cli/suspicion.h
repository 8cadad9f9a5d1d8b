#pragma once

#include <cstdint>
#include <vector>

#include "verdict/judgement.h"

namespace lowtide::cli {

// Whether a rank's growth is worth two looks at all its objects. A pool whose blocks have dates of birth is believed at
// once; the others grow at every start, so that their growth must be large enough and suspicion must last.
class Suspicion {
 public:
  static constexpr uint64_t kLasts = 36;            // iterations of the training loop
  static constexpr double kLeastGrown = 256 << 10;  // bytes

  // `judgements` as of `step`; called again and again as the run goes on.
  bool Is(uint64_t step, const std::vector<verdict::Judgement>& judgements, uint64_t lasts = kLasts) {
    bool dated = false, any = false;
    for (const verdict::Judgement& judgement : judgements) {
      if (!Counts(judgement)) continue;
      any = true;
      dated |= HasDates(judgement);
    }
    since_ = !any ? 0 : since_ ? since_ : step;
    return dated || (any && step >= since_ + lasts);
  }

 private:
  static bool HasDates(const verdict::Judgement& judgement) { return judgement.pool == "cpu" || judgement.pool.starts_with("cuda:"); }
  static bool Counts(const verdict::Judgement& judgement) {
    if (judgement.pool == "host") return false;
    if (judgement.kind == verdict::Kind::kLeak) return true;
    return judgement.watch && (HasDates(judgement) || judgement.pool == "fds" || judgement.grown >= kLeastGrown);
  }

  uint64_t since_ = 0;  // step since which some pool has been suspicious; 0: none is
};

}  // namespace lowtide::cli
