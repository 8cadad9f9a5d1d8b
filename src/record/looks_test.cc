#include "record/looks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "record/ledger.h"

namespace lowtide::record {
namespace {

class Looks : public ::testing::Test {
 protected:
  Looks() : path_((std::filesystem::temp_directory_path() / ("looks-" + std::to_string(::getpid()) + ".ring")).string()) {
    std::filesystem::remove(path_);
    EXPECT_EQ(ring_.Create(path_.c_str(), {}), 0);
    ring_.Publish();
  }
  ~Looks() override { std::filesystem::remove(path_); }

  // One block born in each of the first `steps` steps.
  void Births(uint32_t steps, int64_t bytes) {
    for (uint32_t step = 0; step < steps; ++step) Count<1>(ring_.shards()[0], clock_, bytes, {step, 0});
  }

  std::string path_;
  RingWriter ring_;
  LedgerClock clock_;
};

TEST_F(Looks, AreWhatTheLedgerHeldThen) {
  Births(20, 100);
  WriteLook(ring_, 20);
  Births(0, 0);
  for (uint32_t step = 0; step < 20; ++step) Count<-1>(ring_.shards()[0], clock_, 100, {step, 0});
  auto looks = Ring::Open(path_).Looks();
  ASSERT_EQ(looks.size(), 1u);
  EXPECT_EQ(looks[0].step, 20u);
  ASSERT_EQ(looks[0].rows.size(), 20u);
  EXPECT_EQ(looks[0].rows[7].first_step, 7u);
  EXPECT_EQ(looks[0].rows[7].bytes, 100);
  EXPECT_EQ(looks[0].rows[7].pool, "cpu");
  EXPECT_TRUE(Ring::Open(path_).Ledger().empty());
}

TEST_F(Looks, AFreedLedgerGivesAnEmptyLook) {
  WriteLook(ring_, 8);
  auto looks = Ring::Open(path_).Looks();
  ASSERT_EQ(looks.size(), 1u);
  EXPECT_TRUE(looks[0].rows.empty());
}

TEST_F(Looks, ThoseGivenUpInPartAreLeftOut) {
  Births(200, 64);
  for (uint64_t step = 1; step <= 200; ++step) WriteLook(ring_, step);
  auto looks = Ring::Open(path_).Looks();
  ASSERT_FALSE(looks.empty());
  EXPECT_LT(looks.size(), 200u);
  EXPECT_EQ(looks.back().step, 200u);
  for (const LedgerLook& look : looks) EXPECT_EQ(look.rows.size(), 200u);
}

}  // namespace
}  // namespace lowtide::record
