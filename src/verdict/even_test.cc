#include <gtest/gtest.h>

#include "verdict/engine.h"
#include "verdict/testing/programs.h"

// Short runs whose totals alone, or whose births alone, tell the wrong story.
namespace lowtide::verdict {
namespace {

using series::Point;

// seen = torch.cat([seen, rows]): every block dies, the next one is larger; the peak holds both.
Judgement Concatenated(uint64_t every, double peak_factor, uint64_t limit, uint64_t steps = 300) {
  EngineOptions options;
  options.pool = "cpu";
  Engine engine(options);
  double rows = 0;
  for (uint64_t step = 1; step <= steps; ++step) {
    if (step % every == 0 && rows < static_cast<double>(limit)) ++rows;
    Point point;
    point.step = step, point.value = 1e5 + 8192 * rows, point.peak = 2e5 + peak_factor * 8192 * rows;
    engine.Add(point);
    if (step % 40 == 0 || step == steps) {
      uint64_t born = step / every * every;
      LedgerRow row{born, born, series::Phase::kStep, 8192 * rows, 1};
      engine.SetLedger(std::vector<LedgerRow>{row});
    }
  }
  return engine.Judge(true);
}

TEST(EvenRises, ATensorThatIsMadeAnewLargerEachTimeLeaks) {
  for (double factor : {1.0, 2.0, 8.0}) {
    auto j = Concatenated(1, factor, 1000000);
    ASSERT_EQ(j.kind, Kind::kLeak) << factor << ": " << Reason(j);
    EXPECT_NEAR(*j.bytes_per_step, 8192, 200);
  }
  auto in_validation = Concatenated(20, 2, 1000000, 400);
  ASSERT_EQ(in_validation.kind, Kind::kLeak) << Reason(in_validation);
  EXPECT_NEAR(*in_validation.bytes_per_step, 8192.0 / 20, 60);
}

// A second buffer fills for the first hundred steps: what still goes on is told.
TEST(EvenRises, TheRateIsThatOfTheLastStretch) {
  EngineOptions options;
  options.pool = "cpu";
  Engine engine(options);
  double value = 1e5;
  for (uint64_t step = 1; step <= 300; ++step) {
    value += step <= 100 ? 12288 : 8192;
    Point point;
    point.step = step, point.value = value, point.peak = 2 * value;
    engine.Add(point);
    LedgerRow row{step, step, series::Phase::kStep, value, 1};
    if (step % 40 == 0 || step == 300) engine.SetLedger(std::vector<LedgerRow>{row});
  }
  auto j = engine.Judge(true);
  ASSERT_EQ(j.kind, Kind::kLeak) << Reason(j);
  EXPECT_NEAR(*j.bytes_per_step, 8192, 100);
  EXPECT_NEAR(*j.onset_step, 100, 3);
}

TEST(EvenRises, AQueueThatIsCutAndACurriculumDoNot) {
  EXPECT_NE(Concatenated(1, 2, 120).kind, Kind::kLeak);
  EXPECT_NE(Concatenated(15, 9, 1000000).kind, Kind::kLeak);
}

// A decoder's cache: it grows with each token and is given back after each text; the last text is not over.
TEST(EvenRises, WhatIsGivenBackAfterEachTextDoesNot) {
  EngineOptions options;
  options.pool = "cpu";
  Engine engine(options);
  for (uint64_t step = 1; step <= 1100; ++step) {
    uint64_t tokens = step % 200;
    Point point;
    point.step = step, point.value = 1e5 + 8192.0 * static_cast<double>(tokens), point.peak = 2e5 + 16384.0 * static_cast<double>(tokens);
    engine.Add(point);
    LedgerRow row{step, step, series::Phase::kStep, 8192.0 * static_cast<double>(tokens), 1};
    if (step % 40 == 0) engine.SetLedger(std::vector<LedgerRow>{row});
  }
  auto j = engine.Judge(true);
  EXPECT_NE(j.kind, Kind::kLeak) << Reason(j);
}

Judgement Heap(const std::function<double(uint64_t)>& level, const std::function<bool(uint64_t)>& read) {
  EngineOptions options;
  options.pool = "heap";
  Engine engine(options);
  for (uint64_t step = 1; step <= 400; ++step) {
    if (!read(step)) continue;
    Point point;
    point.step = step, point.value = level(step);
    engine.Add(point);
  }
  return engine.Judge(true);
}

TEST(ShortRuns, AGapBetweenReadingsIsNoSlowing) {
  auto line = [](uint64_t step) { return 1e8 + 199e3 * static_cast<double>(step); };
  auto j = Heap(line, [](uint64_t step) { return step < 140 || step == 153; });
  ASSERT_EQ(j.kind, Kind::kLeak) << Reason(j);
  EXPECT_NEAR(*j.bytes_per_step, 199e3, 5e3);
}

TEST(ShortRuns, StairsWithSmallFallsBetweenThemLeak) {
  auto stairs = [](uint64_t step) {
    return 1e8 + 206e3 * static_cast<double>(step / 25) + 1e3 * static_cast<double>(step / 25 % 3) -
           static_cast<double>(step % 11 == 0 ? 300 : step % 4 * 16);
  };
  auto j = Heap(stairs, [](uint64_t) { return true; });
  ASSERT_EQ(j.kind, Kind::kLeak) << Reason(j);
  EXPECT_NEAR(*j.bytes_per_step, 206e3 / 25, 0.15 * 206e3 / 25);
}

}  // namespace
}  // namespace lowtide::verdict
