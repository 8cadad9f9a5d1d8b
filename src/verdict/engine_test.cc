#include "verdict/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "verdict/testing/families.h"

namespace lowtide::verdict {
namespace {

using series::Point;

Point At(uint64_t step, double value) {
  Point p;
  p.step = step, p.value = value;
  return p;
}

Judgement JudgeAll(const std::vector<Point>& points, EngineOptions options = {}) {
  Engine engine(options);
  for (auto& p : points) engine.Add(p);
  return engine.Judge(true);
}

std::vector<Point> Line(size_t n, double slope, double sigma, uint64_t seed, uint64_t every = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<> noise(0, sigma > 0 ? sigma : 1);
  std::vector<Point> out;
  for (size_t i = 0; i < n; ++i) {
    double v = 1e9 + slope * static_cast<double>(i * every) + (sigma > 0 ? noise(random) : 0);
    out.push_back(At(i * every, std::round(v / 512) * 512));
  }
  return out;
}

TEST(Engine, ConstantSeriesIsHealthy) {
  auto j = JudgeAll(Line(1000, 0, 0, 1));
  EXPECT_EQ(j.kind, Kind::kHealthy);
  EXPECT_FALSE(j.watch);
  EXPECT_LT(*j.no_leak_above, 10);
}

// A rise within the last readings: nothing says yet that the new level is one.
TEST(Engine, AChangeOfLevelHasReadingsAfterIt) {
  auto rising_at = [](size_t at) {
    auto points = Line(120, 0, 0, 1);
    for (size_t i = at; i < points.size(); ++i) points[i].value += 66e6;
    EngineOptions options;
    options.pool = "host";
    return JudgeAll(points, options);
  };
  EXPECT_EQ(rising_at(60).kind, Kind::kStepChange);
  const auto last = rising_at(119);
  EXPECT_NE(last.kind, Kind::kStepChange) << Reason(last);
  EXPECT_EQ(Reason(last).find("level before and after"), std::string::npos);
}

// Workers' memory has to grow by 8 MiB before it is a leak: close to it the steps that are left are told, far from it the rise.
TEST(Engine, ACertainRiseThatIsSmallAsYetIsNotCalledNone) {
  EngineOptions options;
  options.pool = "workers";
  auto close = JudgeAll(Line(300, 20000, 0, 1), options), far = JudgeAll(Line(300, 4096, 0, 1), options);
  EXPECT_EQ(close.kind, Kind::kInsufficient) << Reason(close);
  EXPECT_TRUE(close.steps_needed) << Reason(close);
  EXPECT_EQ(far.kind, Kind::kHealthy) << Reason(far);
  EXPECT_NE(Reason(far).find("in all too little to matter"), std::string::npos) << Reason(far);
}

TEST(Engine, ExactLeakIsFoundInAShortRunWithItsRate) {
  auto j = JudgeAll(Line(300, 40960, 0, 1));
  ASSERT_EQ(j.kind, Kind::kLeak);
  EXPECT_NEAR(*j.bytes_per_step, 40960, 1);
  EXPECT_LE(j.interval->first, 40960);
  EXPECT_GE(j.interval->second, 40960);
  EXPECT_GT(j.confidence, 0.9);
}

TEST(Engine, ScalingAndShiftingChangeNothingButTheRate) {
  auto points = Line(800, 20000, 3e5, 7);
  auto base = JudgeAll(points);
  auto shifted = points, scaled = points;
  for (auto& p : shifted) p.value += 512e6;
  for (auto& p : scaled) p.value *= 4;
  EngineOptions four;
  four.quantum = 2048;
  auto a = JudgeAll(shifted), b = JudgeAll(scaled, four);
  ASSERT_EQ(base.kind, Kind::kLeak);
  EXPECT_EQ(a.kind, base.kind);
  EXPECT_NEAR(*a.bytes_per_step, *base.bytes_per_step, 1e-3 * *base.bytes_per_step);
  ASSERT_EQ(b.kind, base.kind);
  EXPECT_NEAR(*b.bytes_per_step, 4 * *base.bytes_per_step, 1e-3 * *b.bytes_per_step);
}

TEST(Engine, StepsMayBeCountedInAnyUnit) {
  auto one = JudgeAll(Line(600, 30000, 0, 1)), fifty = JudgeAll(Line(600, 600, 0, 1, 50));
  ASSERT_EQ(one.kind, Kind::kLeak);
  ASSERT_EQ(fifty.kind, Kind::kLeak);
  EXPECT_NEAR(*one.bytes_per_step, 50 * *fifty.bytes_per_step, 60);
}

TEST(Engine, StreamingIsBatch) {
  testing::Generator generator(11);
  for (auto& family : {"l_step", "flat", "cache_exp", "gc_long"}) {
    auto c = generator.Make(family, 700, 8);
    Engine asked, unasked;
    size_t k = 0;
    for (auto& p : c.points) {
      asked.Add(p), unasked.Add(p);
      if (++k % 37 == 0) asked.Judge();
    }
    auto a = asked.Judge(true), b = unasked.Judge(true);
    EXPECT_EQ(a.kind, b.kind) << family;
    EXPECT_EQ(a.bytes_per_step, b.bytes_per_step) << family;
  }
}

TEST(Engine, MemoryIsBounded) {
  Engine engine;
  std::mt19937_64 random(1);
  for (uint64_t i = 0; i < 300000; ++i) engine.Add(At(i, 1e9 + 1e6 * std::normal_distribution<>()(random)));
  EXPECT_LT(engine.MemoryUsed(), 60u * 1024);
  EXPECT_EQ(engine.samples(), 300000u);
}

TEST(Engine, OutOfMemoryIsForetold) {
  EngineOptions options;
  options.capacity = 1e9 + 512e6;
  auto points = Line(400, 102400, 0, 1);
  for (auto& p : points) p.time_s = 0.5 * static_cast<double>(p.step);
  auto j = JudgeAll(points, options);
  ASSERT_EQ(j.kind, Kind::kLeak);
  double left = (512e6 - 399 * 102400) / 102400;
  EXPECT_NEAR(*j.steps_to_oom, left, 0.02 * left);
  EXPECT_NEAR(*j.seconds_to_oom, left / 2, 0.02 * left);
  EXPECT_FALSE(j.alarm);
  options.capacity = 1e9 + 100e6;
  EXPECT_TRUE(JudgeAll(points, options).alarm);
}

TEST(Engine, CapacityIsNoLeak) {
  EngineOptions options;
  options.capacity = 1.02e9;
  auto points = Line(500, 0, 1e6, 3);
  for (auto& p : points) p.peak = p.value + 1e7;
  auto j = JudgeAll(points, options);
  EXPECT_EQ(j.kind, Kind::kCapacity);
}

TEST(Engine, FragmentationIsTheGapThatGrows) {
  std::vector<Point> points;
  for (uint64_t i = 0; i < 600; ++i) {
    Point p = At(i, 1e9);
    p.peak = 2e9, p.reserved = 2.1e9 + static_cast<double>(i / 40) * 64e6;
    points.push_back(p);
  }
  auto j = JudgeAll(points);
  ASSERT_EQ(j.kind, Kind::kFragmentation);
  EXPECT_GE(j.gap->rises, 6);
}

TEST(Engine, AnEventThatKeepsMemoryIsBlamed) {
  for (auto phase : {series::Phase::kValidation, series::Phase::kCheckpoint}) {
    Engine engine;
    double value = 1e9;
    for (uint64_t i = 1; i <= 600; ++i) {
      if (i % 30 == 0) engine.AddMark(phase, i), value += 512000;
      engine.Add(At(i, value));
    }
    auto j = engine.Judge(true);
    ASSERT_EQ(j.kind, Kind::kLeak);
    EXPECT_EQ(*j.phase, phase);
  }
  Engine steps;
  for (uint64_t i = 1; i <= 600; ++i) {
    if (i % 30 == 0) steps.AddMark(series::Phase::kValidation, i);
    steps.Add(At(i, 1e9 + 20480.0 * static_cast<double>(i)));
  }
  EXPECT_EQ(*steps.Judge(true).phase, series::Phase::kStep);
}

TEST(Engine, CollectedGarbageIsNoLeak) {
  Engine engine;
  for (uint64_t i = 1; i <= 400; ++i) engine.Add(At(i, 1e9 + 81920.0 * static_cast<double>(i)));
  ASSERT_EQ(engine.Judge(true).kind, Kind::kLeak);
  engine.AddCollection(390 * 81920.0);
  auto j = engine.Judge(true);
  EXPECT_EQ(j.kind, Kind::kBounded);
  EXPECT_EQ(j.state, State::kReclaimed);
}

TEST(Engine, ARestartBeginsAnew) {
  std::vector<Point> points = Line(400, 40960, 0, 1), again = Line(500, 40960, 0, 1);
  for (auto& p : again) p.step += 350, points.push_back(p);
  auto j = JudgeAll(points);
  ASSERT_EQ(j.kind, Kind::kLeak);
  EXPECT_EQ(j.restarts, 1u);
  EXPECT_NEAR(*j.bytes_per_step, 40960, 410);
  auto flat = Line(400, 0, 0, 1), flat_again = Line(500, 0, 0, 1);
  for (auto& p : flat_again) p.step += 350, p.value += 5e8, flat.push_back(p);
  EXPECT_NE(JudgeAll(flat).kind, Kind::kLeak);
}

TEST(Engine, TooLittleIsSaid) {
  for (size_t n : {0, 1, 2, 7}) {
    auto j = JudgeAll(Line(n, 1e6, 0, 1));
    EXPECT_EQ(j.kind, Kind::kInsufficient) << n;
    EXPECT_TRUE(j.steps_needed) << n;
  }
}

TEST(Engine, BrokenPointsAreDropped) {
  Engine engine;
  for (uint64_t i = 0; i < 500; ++i) {
    engine.Add(At(i, 1e9));
    engine.Add(At(i, 5e9));  // the same step again
    engine.Add(At(i + 1, Point::kUnknown));
    engine.Add(At(i + 1, std::numeric_limits<double>::infinity()));
  }
  auto j = engine.Judge(true);
  EXPECT_EQ(j.readings, 500u);
  EXPECT_EQ(j.kind, Kind::kHealthy);
}

TEST(Engine, ABufferThatComesAndGoesHidesNoLeak) {
  auto points = Line(300, 29600, 0, 1);
  for (auto& p : points)
    if (p.step >= 75 && p.step < 140) p.value += 26e6;
  auto j = JudgeAll(points);
  ASSERT_EQ(j.kind, Kind::kLeak);
  EXPECT_NEAR(*j.bytes_per_step, 29600, 0.1 * 29600);
  auto flat = Line(300, 0, 0, 1);
  for (auto& p : flat)
    if (p.step >= 75 && p.step < 140) p.value += 26e6;
  EXPECT_NE(JudgeAll(flat).kind, Kind::kLeak);
}

TEST(Engine, ReadingsMayComeAtUnevenDistances) {
  auto leak = Line(300, 20000, 0, 1), filled = Line(300, 0, 0, 1);
  for (auto& p : filled) p.value += 11264.0 * static_cast<double>(std::min<uint64_t>(p.step, 130));
  auto thin = [](std::vector<Point> points) {  // every step at first, every tenth later
    std::erase_if(points, [](auto& p) { return p.step > 100 && p.step % 10 != 0; });
    return points;
  };
  auto j = JudgeAll(thin(leak));
  ASSERT_EQ(j.kind, Kind::kLeak);
  EXPECT_NEAR(*j.bytes_per_step, 20000, 400);
  EXPECT_NE(JudgeAll(thin(filled)).kind, Kind::kLeak);
}

TEST(Engine, DriftOfTheHeapIsNoLeakUntilItMatters) {
  EngineOptions heap;
  heap.pool = "heap";
  EXPECT_NE(JudgeAll(Line(300, 230, 0, 1), heap).kind, Kind::kLeak);
  std::mt19937_64 random(2);
  auto points = Line(300, 29600, 0, 1);
  for (auto& p : points)
    p.value += 100 * std::normal_distribution<>()(random) * std::sqrt(static_cast<double>(p.step));
  auto j = JudgeAll(points, heap);
  ASSERT_EQ(j.kind, Kind::kLeak);
  EXPECT_NEAR(*j.bytes_per_step, 29600, 0.1 * 29600);
}

}  // namespace
}  // namespace lowtide::verdict
