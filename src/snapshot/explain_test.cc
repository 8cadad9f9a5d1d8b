#include "snapshot/explain.h"

#include <gtest/gtest.h>

#include <numeric>

#include "snapshot/compare.h"
#include "snapshot/pickle_bytes_test.h"

namespace lowtide::snapshot {
namespace {

constexpr uint64_t kMiB = 1 << 20;

uint64_t Sum(const std::vector<Share>& shares) {
  return std::accumulate(shares.begin(), shares.end(), uint64_t{0},
                         [](uint64_t sum, const Share& share) { return sum + share.bytes; });
}

TEST(Lifetimes, PeakCountsBlocksOlderThanTheTrace) {
  // One block freed without an alloc (1000), one alive that no event made (700, rounded 1024), one born
  // (300).
  const std::string segment =
      R"({"device": 0, "address": 4096, "total_size": 2097152, "allocated_size": 1536, "active_size": 1536, "stream": 0, "segment_type": "small",
          "blocks": [{"address": 4096, "size": 1024, "requested_size": 700, "state": "active_allocated", "frames": []},
                     {"address": 5120, "size": 512, "requested_size": 300, "state": "active_allocated", "frames": []}]})";
  const Snapshot snapshot = ReadText(JsonSnapshot(
      JsonEvent("alloc", 5120, 300, 1) + "," + JsonEvent("free_completed", 9216, 1000), segment));
  const Lifetimes lifetimes = FollowLifetimes(snapshot, 0);
  EXPECT_EQ(lifetimes.peak_bytes, 2000u);
  EXPECT_EQ(lifetimes.peak_event, 0);
  EXPECT_TRUE(lifetimes.ring_wrapped);
}

TEST(Explain, LabelsSumToThePeak) {
  std::string events;
  for (uint64_t i = 0; i < 40; ++i) {
    events += (i ? "," : "") + JsonEvent("alloc", 4096 * i, 100 + i, static_cast<int>(1 + i % 7));
    if (i % 3 == 2) events += "," + JsonEvent("free_completed", 4096 * i, 100 + i);
  }
  const Explanation file = Explain(ReadText(JsonSnapshot(events)), {});
  const DeviceReport& device = file.devices.at(0);
  EXPECT_EQ(device.peak.bytes, device.lifetimes.peak_bytes);
  EXPECT_EQ(Sum(device.peak.by_stack), device.peak.bytes);
  EXPECT_EQ(Sum(device.peak.by_line), device.peak.bytes);
  EXPECT_EQ(Sum(device.peak.by_category), device.peak.bytes);
}

// Steps told apart by annotations; the second stack keeps `kept` bytes per step for the first `keeps` steps.
Explanation Steps(int steps, uint64_t kept, int keeps) {
  std::string events, annotations;
  int64_t time = 0;
  uint64_t address = 1 << 20;
  for (int step = 0; step < steps; ++step) {
    annotations += std::string(step ? "," : "") + R"({"stage": "START", "name": "ProfilerStep#)" +
                   std::to_string(step) + R"(", "device": 0, "time_us": )" + std::to_string(time) + "}";
    for (int i = 0; i < 4; ++i) {
      events += (events.empty() ? "" : ",") + JsonEvent("alloc", 4096, kMiB, 1 + i, ++time) + "," +
                JsonEvent("free_completed", 4096, kMiB, 0, ++time);
    }
    if (step < keeps) events += "," + JsonEvent("alloc", address += 4096, kept, 99, ++time);
    ++time;
  }
  return Explain(ReadText("{\"segments\": [], \"device_traces\": [[" + events +
                          "]], \"external_annotations\": [" + annotations + "]}"),
                 {});
}

TEST(Growth, FindsALeakAndItsLine) {
  const Explanation file = Steps(20, 2048, 20);
  const Growth& growth = file.devices.at(0).growth;
  EXPECT_EQ(growth.verdict, "leak") << growth.reason;
  ASSERT_FALSE(growth.stacks.empty());
  EXPECT_EQ(growth.stacks[0].line, 99);
  EXPECT_NEAR(growth.bytes_per_step, 2048, 1);
  EXPECT_EQ(file.findings.at(0).code, "LT305");
}

TEST(Growth, BoundedGrowthIsNoLeak) {
  EXPECT_EQ(Steps(40, 2048, 15).devices.at(0).growth.verdict, "bounded");
}
TEST(Growth, HealthyRunIsHealthy) { EXPECT_EQ(Steps(20, 2048, 0).devices.at(0).growth.verdict, "healthy"); }
TEST(Growth, FewStepsAreInsufficient) {
  EXPECT_EQ(Steps(4, 2048, 4).devices.at(0).growth.verdict, "insufficient");
}

// Layers of one forward pass come back evenly and keep their activations: that is no leak.
TEST(Growth, LayersAreNotSteps) {
  std::string events;
  for (int layer = 0; layer < 40; ++layer) {
    for (int i = 0; i < 3; ++i) {
      const uint64_t address = (1 + static_cast<uint64_t>(layer) * 3 + static_cast<uint64_t>(i)) << 21;
      events += (events.empty() ? "" : ",") + JsonEvent("alloc", address, kMiB, 10 + i);
      if (i == 2) events += "," + JsonEvent("free_completed", address, kMiB);
    }
  }
  EXPECT_NE(Explain(ReadText(JsonSnapshot(events)), {}).devices.at(0).growth.verdict, "leak");
}

TEST(Oom, TellsCapacityFragmentationAndLimitApart) {
  auto cause = [](uint64_t device_free, uint64_t request, bool cached) {
    std::string events =
        JsonEvent("segment_alloc", 1ull << 30, 40 * kMiB) + "," + JsonEvent("alloc", 1ull << 30, 4 * kMiB, 1);
    if (cached)
      events += "," + JsonEvent("alloc", (1ull << 30) + 4 * kMiB, 32 * kMiB, 2) + "," +
                JsonEvent("free_completed", (1ull << 30) + 4 * kMiB, 32 * kMiB);
    events += "," + JsonEvent("oom", device_free, request, 3);
    const std::string segment =
        R"({"device": 0, "address": 1073741824, "total_size": 41943040, "allocated_size": 4194304, "active_size": 4194304, "stream": 0,
        "segment_type": "large", "blocks": [{"address": 1073741824, "size": 4194304, "requested_size": 4194304, "state": "active_allocated", "frames": []},
        {"address": 1077936128, "size": 37748736, "requested_size": 0, "state": "inactive", "frames": []}]})";
    const Explanation file = Explain(ReadText(JsonSnapshot(events, segment)), {});
    EXPECT_EQ(file.devices.at(0).ooms.size(), 1u);
    return file.devices.at(0).ooms.at(0).cause;
  };
  EXPECT_EQ(cause(1 * kMiB, 200 * kMiB, false), "capacity");
  EXPECT_EQ(cause(10 * kMiB, 40 * kMiB, true), "fragmentation");
  EXPECT_EQ(cause(500 * kMiB, 200 * kMiB, false), "limit");
}

TEST(Compare, DifferencesSumToTheDifferenceOfPeaks) {
  Explanation before = Explain(
      ReadText(JsonSnapshot(JsonEvent("alloc", 4096, 1000, 1) + "," + JsonEvent("alloc", 8192, 500, 2))), {});
  Explanation after = Explain(
      ReadText(JsonSnapshot(JsonEvent("alloc", 4096, 1000, 1) + "," + JsonEvent("alloc", 8192, 900, 3))), {});
  const auto diffs = Compare(before, after);
  ASSERT_EQ(diffs.size(), 1u);
  int64_t sum = 0;
  for (const Change& change : diffs[0].by_line) sum += change.delta();
  EXPECT_EQ(sum, 400);
  EXPECT_EQ(diffs[0].by_line.at(0).line, 3);
}

TEST(Ranks, ComeFromFileNames) {
  EXPECT_EQ(RankOfFile("/a/oom_rank7.pickle", 0), 7);
  EXPECT_EQ(RankOfFile("/a/000003_step_12.pickle", 0), 3);
  EXPECT_EQ(RankOfFile("snapshot_12.pickle", 0), 12);
  EXPECT_EQ(RankOfFile("snapshot.pickle", 5), 5);
}

}  // namespace
}  // namespace lowtide::snapshot
