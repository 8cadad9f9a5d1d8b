#include "cli/judge.h"

#include <gtest/gtest.h>

namespace lowtide::cli {
namespace {

using verdict::Judgement;
using verdict::Kind;

Judgement Of(const char* pool, Kind kind, double rate, uint64_t steps = 300, double grown = 1e6) {
  Judgement judgement;
  judgement.pool = pool;
  judgement.kind = kind;
  judgement.bytes_per_step = rate;
  judgement.steps_seen = steps;
  judgement.grown = grown;
  return judgement;
}

TEST(Reconcile, TensorBytesExplainTheHeapAndTheProcess) {
  std::vector<Judgement> all = {Of("cpu", Kind::kLeak, 40e3), Of("heap", Kind::kLeak, 42e3), Of("host", Kind::kLeak, 80e3)};
  EXPECT_EQ(Reconcile(all), (std::vector<size_t>{0, 0, 0}));
}

TEST(Reconcile, GraphNodesOutweighTheFewTensorBytesTheyHold) {
  std::vector<Judgement> all = {Of("cpu", Kind::kLeak, 500), Of("heap", Kind::kLeak, 30e3), Of("host", Kind::kLeak, 90e3)};
  EXPECT_EQ(Reconcile(all), (std::vector<size_t>{1, 1, 1}));
}

TEST(Reconcile, UnderALeakResidentMemoryBoundsNone) {
  std::vector<Judgement> all = {Of("cpu", Kind::kLeak, 40e3), Of("host", Kind::kHealthy, 0)};
  all[1].no_leak_above = 14;
  Reconcile(all);
  EXPECT_FALSE(all[1].no_leak_above) << "the leak goes into pages that were free";
}

TEST(Reconcile, ResidentMemoryAloneProvesNothingInAShortRun) {
  std::vector<Judgement> all = {Of("cpu", Kind::kHealthy, 0), Of("heap", Kind::kHealthy, 0), Of("host", Kind::kLeak, 90e3)};
  EXPECT_EQ(Reconcile(all), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(all[2].kind, Kind::kInsufficient);
  ASSERT_TRUE(all[2].steps_needed);
  EXPECT_GT(*all[2].steps_needed, 0);
}

TEST(Reconcile, ResidentMemoryThatGrowsForLongIsALeak) {
  std::vector<Judgement> all = {Of("heap", Kind::kHealthy, 0), Of("host", Kind::kLeak, 90e3, 20000, 1.8e9)};
  Reconcile(all);
  EXPECT_EQ(all[1].kind, Kind::kLeak);
}

TEST(Reconcile, DescriptorsFollowSharedMemory) {
  std::vector<Judgement> all = {Of("fds", Kind::kLeak, 2), Of("shm", Kind::kLeak, 8192), Of("workers", Kind::kLeak, 1e5)};
  EXPECT_EQ(Reconcile(all), (std::vector<size_t>{1, 1, 2}));
}

TEST(JudgeFolder, AFolderWithoutARunIsOneError) {
  try {
    JudgeFolder("/nonexistent/folder", {});
    FAIL() << "no error";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/folder"), std::string::npos);
  }
}

}  // namespace
}  // namespace lowtide::cli
