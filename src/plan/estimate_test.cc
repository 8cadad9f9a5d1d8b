#include "plan/estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"

namespace lowtide::plan {
namespace {

Setup States(Strategy strategy, uint64_t gpus) {
  plan::Setup setup;
  setup.strategy = strategy;
  setup.gpus = gpus;
  setup.weights = Weights::kMaster;
  setup.states_only = true;
  return setup;
}

double States(const Shape& shape, const Setup& setup) { return Predict(shape, setup).Peak(); }

// Rajbhandari et al., arXiv 1910.02054, figure 1: 7.5B parameters on 64 GPUs.
TEST(EstimateTest, ZeroFigureOne) {
  const Shape shape = GuessShape(7.5e9, {});
  EXPECT_NEAR(States(shape, States(Strategy::kDdp, 64)) / 1e9, 120, 0.05);
  EXPECT_NEAR(States(shape, States(Strategy::kZero1, 64)) / 1e9, 31.4, 0.05);
  EXPECT_NEAR(States(shape, States(Strategy::kZero2, 64)) / 1e9, 16.6, 0.05);
  EXPECT_NEAR(States(shape, States(Strategy::kZero3, 64)) / 1e9, 1.9, 0.05);
}

// The tables in DeepSpeed's documentation for 2851M parameters, largest layer 32M, 8 GPUs (units of 2^30).
TEST(EstimateTest, DeepSpeedEstimators) {
  const Shape shape = GuessShape(2851e6, {});
  auto figure = [&](Strategy strategy, bool optimizer, bool parameters) {
    plan::Setup setup = States(strategy, 8);
    setup.deepspeed_counting = true;
    setup.largest_layer = 32e6;
    setup.offload_optimizer = optimizer;
    setup.offload_parameters = parameters;
    return States(shape, setup) / 1073741824;
  };
  EXPECT_NEAR(figure(Strategy::kZero2, false, false), 15.93, 0.01);
  EXPECT_NEAR(figure(Strategy::kZero2, true, false), 5.31, 0.01);
  EXPECT_NEAR(figure(Strategy::kZero3, false, false), 6.10, 0.01);
  EXPECT_NEAR(figure(Strategy::kZero3, true, false), 0.79, 0.01);
  EXPECT_NEAR(figure(Strategy::kZero3, true, true), 0.12, 0.01);
}

TEST(EstimateTest, OptimizersAndPrecisions) {
  const Shape shape = GuessShape(1e9, {});
  auto bytes = [&](Weights weights, Optimizer optimizer) {
    plan::Setup setup = States(Strategy::kSingle, 1);
    setup.weights = weights;
    setup.optimizer = optimizer;
    return States(shape, setup) / 1e9;
  };
  EXPECT_NEAR(bytes(Weights::kMixed, Optimizer::kAdamW), 16, 0.01);
  EXPECT_NEAR(bytes(Weights::kFp32, Optimizer::kAdamW), 16, 0.01);
  EXPECT_NEAR(bytes(Weights::kPure, Optimizer::kAdamW), 8, 0.01);
  EXPECT_NEAR(bytes(Weights::kPure, Optimizer::kSgd), 4, 0.01);
  EXPECT_NEAR(bytes(Weights::kFp32, Optimizer::kMomentum), 12, 0.01);
  EXPECT_NEAR(bytes(Weights::kFp32, Optimizer::kLion), 12, 0.01);
  EXPECT_NEAR(bytes(Weights::kFp32, Optimizer::kAdam8bit), 10.03, 0.01);
  EXPECT_LT(bytes(Weights::kFp32, Optimizer::kAdafactor), 8.1);
  EXPECT_GT(bytes(Weights::kFp32, Optimizer::kMuon), 12);
  EXPECT_LT(bytes(Weights::kFp32, Optimizer::kMuon), 16);
}

TEST(EstimateTest, AdaptersAreSmall) {
  const Shape shape = *FindPreset("llama3.1-8b");
  plan::Setup setup = States(Strategy::kSingle, 1);
  setup.lora_rank = 16;
  const double bytes = States(shape, setup);
  // 41.9M adapters (16 bytes each) over a 16-bit base; 7 maps a layer, rank 16, as published for this rank.
  EXPECT_NEAR(bytes / 1e9, 8.03 * 2 + 0.0419 * 16, 0.05);
  setup.base_bits = 4;
  EXPECT_LT(States(shape, setup), 0.45 * bytes);
}

struct Case {
  const char* model;
  plan::Setup setup;
};

std::vector<Case> Many() {
  std::vector<Case> cases;
  for (const char* model : {"llama3.1-8b", "gpt2", "mixtral-8x7b", "deepseek-v2-lite", "t5-3b", "bert-base"}) {
    for (Strategy strategy : {Strategy::kDdp, Strategy::kZero1, Strategy::kZero2, Strategy::kZero3, Strategy::kFsdp, Strategy::kMegatron}) {
      for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull, Recompute::kOffload}) {
        for (uint64_t split : {1, 2, 4}) {
          plan::Setup setup;
          setup.strategy = strategy;
          setup.gpus = 32;
          setup.tensor = split;
          setup.pipeline = split;
          setup.recompute = recompute;
          setup.accumulate = 2 * split;
          cases.push_back({model, setup});
        }
      }
    }
  }
  return cases;
}

TEST(EstimateTest, EveryByteHasALabelAndASource) {
  for (const Case& one : Many()) {
    const Estimate estimate = Predict(*FindPreset(one.model), one.setup);
    for (const StageMemory& stage : estimate.stages) {
      std::set<std::string> ids;
      double sum = 0;
      for (const Term& term : stage.terms) {
        EXPECT_TRUE(ids.insert(term.id).second) << term.id << " stands twice";
        EXPECT_FALSE(term.name.en.empty() || term.name.zh.empty() || term.formula.en.empty() || term.formula.zh.empty() || term.source.empty()) << term.id;
        for (double bytes : term.bytes) EXPECT_TRUE(std::isfinite(bytes) && bytes >= 0) << term.id;
        sum += term.bytes[stage.PeakMoment()];
      }
      EXPECT_DOUBLE_EQ(sum, stage.Peak());
    }
  }
}

TEST(EstimateTest, MoreOfAnythingIsNotLess) {
  for (const Case& one : Many()) {
    const Shape& shape = *FindPreset(one.model);
    const double peak = Predict(shape, one.setup).Peak();
    plan::Setup more = one.setup;
    more.micro_batch *= 2;
    EXPECT_GE(Predict(shape, more).Peak(), peak) << one.model;
    more = one.setup;
    more.sequence *= 2;
    EXPECT_GE(Predict(shape, more).Peak(), peak) << one.model;
    more = one.setup;
    more.flash = false;
    EXPECT_GE(Predict(shape, more).Peak(), peak) << one.model;
  }
}

TEST(EstimateTest, SplittingAndRecomputingSave) {
  const Shape& shape = *FindPreset("llama3.1-8b");
  plan::Setup setup;
  setup.strategy = Strategy::kFsdp;
  setup.gpus = 8;
  setup.micro_batch = 4;
  const double whole = Predict(shape, setup).Peak();
  setup.recompute = Recompute::kSelective;
  const double selective = Predict(shape, setup).Peak();
  setup.recompute = Recompute::kFull;
  const double full = Predict(shape, setup).Peak();
  EXPECT_LT(selective, whole);
  EXPECT_LT(full, selective);
  setup.gpus = 64;
  EXPECT_LT(Predict(shape, setup).Peak(), full);
}

std::string Complaint(const Setup& setup) {
  try {
    Predict(*FindPreset("llama3.1-8b"), setup);
  } catch (const Error& error) {
    EXPECT_FALSE(error.remedy().empty());
    return error.message();
  }
  return "";
}

TEST(EstimateTest, SetupsThatCannotRunAreErrors) {
  plan::Setup setup;
  setup.strategy = Strategy::kMegatron;
  setup.gpus = 64;
  setup.tensor = 3;
  EXPECT_NE(Complaint(setup).find("64 GPUs"), std::string::npos);
  setup.gpus = 66;
  EXPECT_NE(Complaint(setup).find("heads"), std::string::npos);
  setup.tensor = 1;
  setup.gpus = setup.pipeline = 64;
  EXPECT_NE(Complaint(setup).find("32 layers"), std::string::npos);
  setup.pipeline = 1;
  setup.expert = 2;
  EXPECT_NE(Complaint(setup).find("experts"), std::string::npos);
  setup.expert = 1;
  setup.micro_batch = 0;
  EXPECT_NE(Complaint(setup).find("--micro-batch"), std::string::npos);
  setup.micro_batch = UINT64_MAX;
  EXPECT_NE(Complaint(setup), "");
}

}  // namespace
}  // namespace lowtide::plan
