#include "series/table.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace lowtide::series {
namespace {

Table Parse(std::string_view text) { return ParseTable(text, "x.csv"); }
const Series& Find(const Table& table, const std::string& pool, int rank = 0) {
  for (auto& s : table.series)
    if (s.pool == pool && s.rank == rank) return s;
  throw std::runtime_error("no series " + pool);
}

TEST(Table, ColumnsInAnyOrderWithGaps) {
  auto t = Parse("peak,step,allocated,rss,reserved\n300,1,100,7,400\n,2,110,,\n310,3,120,9,400\n");
  EXPECT_EQ(t.rows, 3u);
  auto& cuda = Find(t, "cuda:0");
  ASSERT_EQ(cuda.points.size(), 3u);
  EXPECT_EQ(cuda.points[0].peak, 300);
  EXPECT_TRUE(std::isnan(cuda.points[1].peak));
  EXPECT_EQ(cuda.points[2].reserved, 400);
  EXPECT_EQ(Find(t, "host").points.size(), 2u);
}

TEST(Table, BomCrlfCommentsBlankLinesAndQuotes) {
  auto t = Parse(
      "\xEF\xBB\xBF# made by hand\r\n\"step\",\"allocated\"\r\n\r\n1,\"1,024\"\r\n# more\r\n2,2048\r\n");
  auto& s = Find(t, "cuda:0");
  ASSERT_EQ(s.points.size(), 2u);
  EXPECT_EQ(s.points[0].value, 1024);
}

TEST(Table, UnitsInCellsAndHeadings) {
  auto t = Parse("step;allocated_mb;reserved (GiB);rss\n1;2;1;3 KiB\n2;2.5;1;4KB\n");
  EXPECT_EQ(Find(t, "cuda:0").points[1].value, 2.5e6);
  EXPECT_EQ(Find(t, "cuda:0").points[0].reserved, 1024.0 * 1024 * 1024);
  EXPECT_EQ(Find(t, "host").points[0].value, 3072);
  EXPECT_EQ(Find(t, "host").points[1].value, 4000);
}

TEST(Table, UsedLessReservedIsItsOwnPool) {
  auto t = Parse("step,allocated,reserved,used,rank\n0,10,100,150,3\n1,10,100,160,3\n");
  EXPECT_EQ(Find(t, "device-other:0", 3).points[1].value, 60);
}

TEST(Table, PhasesBecomeMarks) {
  auto t = Parse("step,allocated,phase\n1,5,train\n2,9,val\n3,9,val\n4,5,train\n5,5,eval\n");
  auto& s = Find(t, "cuda:0");
  ASSERT_EQ(s.marks.size(), 2u);
  EXPECT_EQ(s.marks[0].second, 2u);
  EXPECT_EQ(s.points[1].phase, Phase::kValidation);
}

TEST(Table, NvidiaSmiLog) {
  auto t = Parse(
      "timestamp, index, name, memory.used [MiB], memory.total [MiB]\n"
      "2024/05/01 12:00:00.000, 0, NVIDIA A100, 1000 MiB, 40960 MiB\n"
      "2024/05/01 12:00:00.001, 1, NVIDIA A100, 2000 MiB, 40960 MiB\n"
      "timestamp, index, name, memory.used [MiB], memory.total [MiB]\n"
      "2024/05/01 12:00:01.000, 0, NVIDIA A100, 1001 MiB, 40960 MiB\n");
  EXPECT_EQ(t.format, "nvidia-smi");
  auto& s = Find(t, "cuda:0");
  ASSERT_EQ(s.points.size(), 2u);
  EXPECT_EQ(s.points[1].value, 1001.0 * 1048576);
  EXPECT_NEAR(s.points[1].time_s - s.points[0].time_s, 1, 1e-6);
  EXPECT_EQ(*s.capacity, 40960.0 * 1048576);
  EXPECT_EQ(Find(t, "cuda:1").points.size(), 1u);
}

TEST(Table, LogLines) {
  auto t = Parse(
      "starting up\n"
      "[2024-01-01] step:  100  loss:  4.2  memory: 34.50GiB(43.12%)\n"
      "step 200 | allocated: 12.3 GB, reserved: 20 GB\n"
      "Epoch(train) [1][ 300/7330]  lr: 0.02  memory: 12345  loss: 1.2\n"
      "eta: 1:00  iter: 400  total_loss: 1.2  max_mem: 2345M\n"
      "no figures at step 500\n");
  EXPECT_EQ(t.format, "log");
  auto& s = Find(t, "cuda:0");
  ASSERT_EQ(s.points.size(), 4u);
  EXPECT_EQ(s.points[0].step, 100u);
  EXPECT_NEAR(s.points[0].value, 34.5 * 1024 * 1024 * 1024, 1);
  EXPECT_NEAR(s.points[1].value, 12.3e9, 1);
  EXPECT_NEAR(s.points[1].reserved, 20e9, 1);
  EXPECT_EQ(s.points[2].step, 300u);
  EXPECT_NEAR(s.points[2].value, 12345.0 * 1048576, 1);
  EXPECT_NEAR(s.points[3].value, 2345e6, 1);
}

TEST(Table, SkippedRowsAreCounted) {
  auto t = Parse("step,allocated\n1,10\nx,20\n2,n/a\n3,30,40\n4,-5\n5,50\n");
  EXPECT_EQ(t.rows, 2u);
  uint64_t skipped = 0;
  for (auto& [reason, count] : t.skipped) skipped += count;
  EXPECT_GE(skipped, 4u);
}

TEST(Table, QuantumOfMiBFigures) {
  std::string text = "step,value_bytes\n";
  for (int i = 0; i < 20; ++i) text += std::to_string(i) + "," + std::to_string((100 + i) * 1048576L) + "\n";
  EXPECT_EQ(Parse(text).series[0].quantum, 1048576);
}

TEST(Table, HopelessInputIsOneError) {
  for (std::string text : {std::string(), std::string("hello world\n"), std::string("a,b\n1,2,3\n"),
                           std::string("step,allocated\nx,y\n"), std::string("\0\1\2\3", 4),
                           std::string(100000, 'a'), std::string(50000, ','), std::string("\n\n\n\n")}) {
    try {
      Parse(text);
      ADD_FAILURE() << text.substr(0, 40);
    } catch (const Error& error) {
      EXPECT_FALSE(error.remedy().empty());
      EXPECT_EQ(error.file().rfind("x.csv", 0), 0u);
    }
  }
}

TEST(Table, HostileNumbersDoNoHarm) {
  auto t =
      Parse("step,allocated\n1,1e400\n2,nan\n3,inf\n99999999999999999999,5\n-4,5\n6,1e18\n7,0x10\n8,512\n");
  for (auto& s : t.series)
    for (auto& p : s.points) EXPECT_TRUE(std::isfinite(p.value));
}

}  // namespace
}  // namespace lowtide::series
