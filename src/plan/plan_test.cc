#include "plan/plan.h"

#include <gtest/gtest.h>

#include <set>

namespace lowtide::plan {
namespace {

Request Ask(const char* model, uint64_t gpus, const char* gpu) {
  Request request;
  request.shape = *FindPreset(model);
  request.setup.gpus = gpus;
  request.setup.strategy = gpus > 1 ? Strategy::kFsdp : Strategy::kSingle;
  request.gpu = *FindGpu(gpu);
  request.capacity = request.gpu.memory;
  return request;
}

TEST(PlanTest, FitsOnlyWithTheWholeBandToSpare) {
  for (const char* model : {"gpt2", "llama3.1-8b", "mixtral-8x7b", "llama3.1-70b"}) {
    for (const char* gpu : {"t4", "4090", "a100-40", "h100"}) {
      const Plan plan = MakePlan(Ask(model, 16, gpu));
      ASSERT_FALSE(plan.candidates.empty());
      for (const Candidate& candidate : plan.candidates) {
        const double room = plan.request.capacity - UnusableMemory(candidate.estimate).total();
        const double peak = candidate.estimate.Peak(), band = candidate.estimate.band;
        EXPECT_EQ(candidate.fit == Fit::kFits, peak * (1 + band) <= room);
        EXPECT_EQ(candidate.fit == Fit::kTooLarge, peak * (1 - band) > room);
        EXPECT_FALSE(candidate.why.en.empty() || candidate.why.zh.empty());
        EXPECT_EQ(candidate.fit == Fit::kFits, candidate.largest_micro_batch >= 1) << candidate.kind;
      }
    }
  }
}

TEST(PlanTest, OneRowOfAKindAndFittingOnesFirst) {
  const Plan plan = MakePlan(Ask("llama3.1-8b", 16, "a100-80"));
  std::set<std::string> kinds;
  for (size_t i = 0; i < plan.candidates.size(); ++i) {
    EXPECT_TRUE(kinds.insert(plan.candidates[i].kind).second);
    if (i) {
      EXPECT_LE(plan.candidates[i - 1].fit, plan.candidates[i].fit);
    }
  }
  for (const char* kind : {"ddp", "zero1", "zero2", "fsdp", "hsdp", "tp-fsdp", "tp-pp-dp"}) EXPECT_TRUE(kinds.count(kind)) << kind;
}

TEST(PlanTest, LargestMicroBatchIsTheLargest) {
  const Request request = Ask("llama3.1-8b", 8, "h100");
  plan::Setup setup = request.setup;
  const uint64_t batch = LargestMicroBatch(request.shape, setup, request.capacity);
  ASSERT_GE(batch, 1u);
  setup.micro_batch = batch;
  EXPECT_EQ(Judge(Predict(request.shape, setup), request.capacity), Fit::kFits);
  setup.micro_batch = batch + 1;
  EXPECT_NE(Judge(Predict(request.shape, setup), request.capacity), Fit::kFits);
}

// Under 7B articles say DDP: 6.7B in 16 bytes a parameter is more than any 80 GB GPU has.
TEST(PlanTest, ThePopularBucketsAreAnsweredByArithmetic) {
  const Plan plan = MakePlan(Ask("llama2-7b", 8, "a100-80"));
  ASSERT_TRUE(plan.popular);
  EXPECT_EQ(plan.popular->name, "DDP");
  EXPECT_EQ(plan.popular->candidate.fit, Fit::kTooLarge);
  EXPECT_FALSE(plan.popular->reason.en.empty());
  const Plan large = MakePlan(Ask("llama3.1-8b", 8, "h200"));
  ASSERT_TRUE(large.popular);
  EXPECT_EQ(large.popular->name, "FSDP + CPU offload");
  EXPECT_EQ(large.popular->candidate.fit, Fit::kFits);
  ASSERT_TRUE(large.chosen);
  EXPECT_GT(large.popular->candidate.cost.seconds, large.candidates[*large.chosen].cost.seconds);
}

TEST(PlanTest, RingVolumes) {
  Request request = Ask("gpt2", 8, "a100-80");
  const double parameters = CountParameters(request.shape).total;
  request.setup.strategy = Strategy::kDdp;
  EXPECT_NEAR(Price(request.shape, request.setup, request.gpu).network_bytes, 2 * 7.0 / 8 * 4 * parameters, 1);
  request.setup.strategy = Strategy::kFsdp;  // two gathers in 16 bits, one reduce-scatter in 32
  EXPECT_NEAR(Price(request.shape, request.setup, request.gpu).network_bytes, 7.0 / 8 * (2 * 2 + 4) * parameters, 1);
}

TEST(PlanTest, MeasuredActivationsReplaceGuessedLayers) {
  Request request = Ask("gpt2", 4, "t4");
  request.setup.measured_per_sample = 1e6;
  request.setup.micro_batch = 3;
  const Plan plan = MakePlan(request);
  for (const Candidate& candidate : plan.candidates) {
    EXPECT_EQ(candidate.estimate.setup.tensor * candidate.estimate.setup.pipeline, 1u);
    EXPECT_DOUBLE_EQ(candidate.estimate.Worst().terms.back().bytes[kLoss], 3e6);
  }
}

}  // namespace
}  // namespace lowtide::plan
