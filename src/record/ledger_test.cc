#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <vector>

#include "record/ledger.h"
#include "record/pointer_table.h"

namespace lowtide::record {
namespace {

TEST(SizeClass, FloorsAreTheSmallestOfTheirClass) {
  for (uint32_t index = 0; index < 150; ++index) {
    const uint64_t floor = SizeClassFloor(index);
    EXPECT_EQ(SizeClassOf(floor), index);
    if (floor > 0) {
      EXPECT_EQ(SizeClassOf(floor - 1), index - 1);
    }
  }
  EXPECT_LT(SizeClassOf(UINT64_MAX), kSizeClasses);
}

TEST(Ledger, CellsStayExactWhileTheGroupingGrows) {
  static LedgerShard shard{};
  LedgerClock clock;
  std::map<uint32_t, int64_t> alive;  // by step of birth
  std::vector<std::pair<Birth, int64_t>> blocks;
  std::mt19937_64 random(3);
  for (uint32_t step = 0; step < 5000; ++step) {
    while ((step >> clock.shift) >= kLedgerBuckets) ++clock.shift;
    clock.step = step;
    for (int i = 0; i < 3; ++i) {
      const auto size = static_cast<int64_t>(1 + random() % 100000);
      const Birth birth{step, static_cast<uint8_t>(random() % kLedgerPhases)};
      Count<1>(shard, clock, size, birth);
      blocks.emplace_back(birth, size);
    }
    while (blocks.size() > 100) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      Count<-1>(shard, clock, blocks.back().second, blocks.back().first);
      blocks.pop_back();
    }
  }
  int64_t total = 0, cells[kLedgerPhases][kLedgerBuckets] = {};
  for (const auto& [birth, size] : blocks) {
    total += size;
    cells[birth.phase][birth.step >> clock.shift] += size;
  }
  EXPECT_EQ(shard.bytes, total);
  EXPECT_EQ(shard.blocks, static_cast<int64_t>(blocks.size()));
  EXPECT_EQ(shard.births, 15000u);
  for (uint32_t phase = 0; phase < kLedgerPhases; ++phase) {
    for (uint32_t b = 0; b < kLedgerBuckets; ++b) ASSERT_EQ(shard.cells[phase][b].bytes, cells[phase][b]);
  }
  int64_t by_size = 0;
  for (const LedgerCell& cell : shard.sizes) by_size += cell.bytes;
  EXPECT_EQ(by_size, total);
}

TEST(PointerTable, AgreesWithAMap) {
  PointerTable table;
  std::map<uintptr_t, int64_t> truth;
  std::mt19937_64 random(5);
  for (int i = 0; i < 300000; ++i) {
    const uintptr_t key = (1 + random() % 20000) * 512;
    auto* pointer = reinterpret_cast<void*>(key);
    BlockInfo info{};
    if (random() % 2) {
      const auto size = static_cast<int64_t>(random() % 1000);
      ASSERT_TRUE(table.Insert(pointer, {size, {1, 0}, 0}));
      truth[key] = size;
    } else if (table.Remove(pointer, &info)) {
      ASSERT_EQ(truth.at(key), info.size);
      truth.erase(key);
    } else {
      ASSERT_EQ(truth.count(key), 0u);
    }
  }
  EXPECT_EQ(table.size(), truth.size());
}

TEST(PointerTable, IsSafeFromManyThreads) {
  static PointerTable table;
  std::vector<std::thread> threads;
  for (uintptr_t t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      for (uintptr_t i = 1; i < 20000; ++i) {
        auto* pointer = reinterpret_cast<void*>((i * 8 + t) * 4096);
        BlockInfo info{};
        table.Insert(pointer, {static_cast<int64_t>(i), {0, 0}, 0});
        if (i % 3) table.Remove(pointer, &info);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table.size(), 8u * (19999 / 3));
}

}  // namespace
}  // namespace lowtide::record
