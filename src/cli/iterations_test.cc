#include "cli/iterations.h"

#include <gtest/gtest.h>

namespace lowtide::cli {
namespace {

TEST(Iterations, FiguresInStepsAreTurnedAndOthersAreNot) {
  verdict::Judgement leak;
  leak.kind = verdict::Kind::kLeak;
  leak.bytes_per_step = 4000, leak.interval = {3600, 4400}, leak.onset_step = 2, leak.steps_to_oom = 100, leak.seconds_to_oom = 50;
  leak.first_step = 1, leak.last_step = 75, leak.steps_seen = 75, leak.readings = 70, leak.grown = 300000;
  CountInIterations({4, "train.py:9"}, leak);
  EXPECT_EQ(*leak.bytes_per_step, 1000);
  EXPECT_EQ(leak.interval->first, 900);
  EXPECT_EQ(leak.interval->second, 1100);
  EXPECT_EQ(*leak.onset_step, 8);
  EXPECT_EQ(*leak.steps_to_oom, 400);
  EXPECT_EQ(*leak.seconds_to_oom, 50);
  EXPECT_EQ(leak.last_step, 300);
  EXPECT_EQ(leak.steps_seen, 300u);
  EXPECT_EQ(leak.readings, 70u);
  EXPECT_EQ(leak.grown, 300000);
  EXPECT_NE(verdict::Reason(leak).find("one iteration of the loop at train.py:9; the optimizer steps once in 4 of them"), std::string::npos);
  EXPECT_NE(verdict::ReasonZh(leak).find("train.py:9"), std::string::npos);
}

TEST(Iterations, OneToAStepChangesNothing) {
  verdict::Judgement leak;
  leak.kind = verdict::Kind::kLeak;
  leak.bytes_per_step = 4000, leak.last_step = 75;
  CountInIterations(Iterations(), leak);
  EXPECT_EQ(*leak.bytes_per_step, 4000);
  EXPECT_TRUE(leak.note.empty());
}

TEST(Iterations, WhatIsShownOfARankFollows) {
  report::RankView rank;
  rank.steps = 50, rank.phases = {{"validation", 10, 12}};
  report::SeriesView series{"cpu", 0, {{10, 1, 1}}, std::nullopt};
  finding::HolderRow holder;
  holder.bytes_per_step = 30;
  const Iterations iterations{1.5, "train.py:9"};
  CountInIterations(iterations, rank), CountInIterations(iterations, series), CountInIterations(iterations, holder);
  EXPECT_EQ(rank.steps, 75u);
  EXPECT_EQ(rank.phases[0].first_step, 15u);
  EXPECT_EQ(series.points[0].step, 15u);
  EXPECT_EQ(holder.bytes_per_step, 20);
}

}  // namespace
}  // namespace lowtide::cli
