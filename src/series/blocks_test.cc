#include "series/blocks.h"

#include <gtest/gtest.h>

#include "series/period.h"

namespace lowtide::series {
namespace {

TEST(Blocks, LowIsTheSecondSmallestOfFour) {
  std::vector<Sample> s{{0, 5, 50}, {1, 3, 30}, {2, 9, 90}, {3, 4, 40}};
  Block b = MakeBlock(s);
  EXPECT_EQ(b.low, 4);
  EXPECT_EQ(b.min, 3);
  EXPECT_EQ(b.peak, 40);
  EXPECT_EQ(b.first, 0);
  EXPECT_EQ(b.last, 3);
}

TEST(Blocks, PyramidKeepsTheNewest) {
  Pyramid pyramid;
  for (int i = 0; i < 1000; ++i)
    pyramid.Add(
        {static_cast<double>(i), static_cast<double>(i), 0, static_cast<double>(i), static_cast<double>(i)});
  std::vector<Block> blocks;
  pyramid.level(0).CopyTo(blocks);
  ASSERT_EQ(blocks.size(), BlockRing::kBlocks);
  EXPECT_EQ(blocks.back().low, 999);
  EXPECT_EQ(blocks.front().low, 936);
  EXPECT_EQ(pyramid.level(0).history_max(), 935);
  pyramid.level(1).CopyTo(blocks);
  EXPECT_EQ(blocks.back().low, 997.5);
  EXPECT_EQ(blocks.back().min, 996);
}

TEST(Blocks, WholeRunSpansEverythingInEqualBlocks) {
  WholeRun run;
  for (int i = 0; i < 10000; ++i) run.Add({1, 1, 1, static_cast<double>(i), static_cast<double>(i)});
  std::vector<Block> blocks;
  run.CopyTo(blocks);
  EXPECT_GE(blocks.size(), WholeRun::kHalf);
  EXPECT_LE(blocks.size(), 2 * WholeRun::kHalf);
  EXPECT_EQ(blocks.front().first, 0);
  EXPECT_GE(blocks.back().last, 9900);
  for (size_t i = 1; i < blocks.size(); ++i) EXPECT_EQ(blocks[i].first, blocks[i - 1].last + 1);
}

TEST(Period, FindsCyclesAndNotTrends) {
  std::vector<Sample> cycle, line;
  for (int i = 0; i < 256; ++i) {
    cycle.push_back({static_cast<double>(i), static_cast<double>(i % 8 == 0 ? 100 : (i * 7) % 8), 0});
    line.push_back({static_cast<double>(i), 3.0 * i, 0});
  }
  EXPECT_EQ(EstimatePeriod(cycle), 8u);
  EXPECT_EQ(EstimatePeriod(line), 0u);
  EXPECT_EQ(BaseBlockLength(8), 8u);
  EXPECT_EQ(BaseBlockLength(3), 6u);
  EXPECT_EQ(BaseBlockLength(2), 4u);
  EXPECT_EQ(BaseBlockLength(0), 4u);
}

}  // namespace
}  // namespace lowtide::series
