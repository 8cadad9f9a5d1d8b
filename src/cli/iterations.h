// Steps as users count them. The recorder's step is an optimizer's; where the training loop goes round several times for one
// (gradient accumulation, batches that are skipped), what is shown is counted in iterations of the loop.
#pragma once

#include <cstdint>
#include <string>

#include "finding/document.h"
#include "record/ring_reader.h"
#include "report/run_view.h"
#include "verdict/judgement.h"

namespace lowtide::cli {

struct Iterations {
  double per_step = 1;  // 1: also where it is not known
  std::string place;    // "train.py:28", the loop's first line

  bool differ() const { return per_step != 1; }
  uint64_t Of(uint64_t step) const;
};

// From the ring's header. Steps that the user marks, batches and backward calls are iterations already.
Iterations IterationsOf(const record::Ring& ring);

// Each figure that is in steps, made one in iterations.
void CountInIterations(const Iterations& iterations, verdict::Judgement& judgement);
void CountInIterations(const Iterations& iterations, report::RankView& rank);
void CountInIterations(const Iterations& iterations, report::SeriesView& series);
void CountInIterations(const Iterations& iterations, finding::HolderRow& holder);

}  // namespace lowtide::cli
