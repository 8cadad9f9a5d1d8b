#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/cost.h"
#include "plan/estimate.h"
#include "plan/gpus.h"

namespace lowtide::plan {

// One way to train the model, as good as it can be made.
struct Candidate {
  std::string kind;        // "ddp", "fsdp", "tp-pp-dp", ...: one row of the table each
  Estimate estimate;
  Cost cost;
  Fit fit = Fit::kTooLarge;
  uint64_t largest_micro_batch = 0;  // that fits with the whole band to spare; 0: none
  Text why;                // one line: what it costs, or what is too much
};

// What articles advise by parameter count alone, and what the arithmetic says to that.
struct Popular {
  std::string name;        // "DDP", ...
  Candidate candidate;
  Text reason;             // why it differs, or that it does not
};

// What `lowtide plan --measure` saw.
struct Measured {
  uint64_t steps = 0;
  std::string pool;            // "cpu", "cuda:0"
  double peak = 0, steady = 0; // bytes, as PyTorch's allocator or lowtide's ledger counted them
  std::optional<double> parameters, trainable, weights, gradients, optimizer;  // bytes but the first two
  std::optional<uint64_t> micro_batch, sequence;
  double dynamic = 0;          // peak less weights, gradients and optimizer
  double predicted_weights = 0, predicted_gradients = 0, predicted_optimizer = 0;
  double predicted_peak = 0, predicted_dynamic = 0;
  std::optional<double> ratio; // dynamic measured / predicted
  std::vector<Text> notes;
};

// What the user asked for; `setup` has the chosen numbers, the flags say which of them were given.
struct Request {
  Shape shape;
  Setup setup;
  bool strategy_given = false, recompute_given = false, code_given = false, sequence_given = false;
  Gpu gpu = kUnknownGpu;
  double capacity = 0;     // bytes; 0: not given, nothing is ranked
};

struct Plan {
  Request request;
  ParameterCount count;
  std::vector<Candidate> candidates;  // those that fit first, the cheapest first
  std::optional<size_t> chosen;       // index into candidates; none when the user's own setup is shown
  Candidate shown;                    // whose terms are shown: the user's setup, else the best
  std::optional<Popular> popular;
  std::optional<Measured> measured;
  std::vector<Text> notes;
};

// Estimates the setup, and with a capacity ranks the strategies. Throws Error (CheckShape, CheckSetup).
Plan MakePlan(const Request& request);

// The largest micro batch that fits with the band to spare; 0 when none does.
uint64_t LargestMicroBatch(const Shape& shape, Setup setup, double capacity);

}  // namespace lowtide::plan
