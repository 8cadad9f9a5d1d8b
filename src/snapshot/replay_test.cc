#include "snapshot/replay.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "snapshot/pickle_bytes_test.h"
#include "snapshot/reader.h"

namespace lowtide::snapshot {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Real recordings: single stream, without torch_npu's own rules, with segments that agree with the trace.
TEST(Replay, PredictsTheRecordedRuns) {
  const auto folder = std::filesystem::path(LOWTIDE_SOURCE_DIR) / "../shared/snapshots";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no folder " << folder << " with recorded snapshots";
  uint64_t allocs = 0, right = 0, segments = 0, segments_right = 0, devices = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".pickle") continue;
    const Snapshot snapshot = ReadSnapshot(entry.path());
    for (int device : snapshot.Devices()) {
      const DeviceTrace* trace = snapshot.TraceOf(device);
      if (!trace || trace->count < 2) continue;
      const ReplayCheck check = CheckReplay(snapshot, device);
      if (!check.single_stream || (snapshot.family == "torch_npu" && check.expandable)) continue;
      ++devices;
      allocs += check.allocs;
      right += check.addresses_right;
      segments += check.segments + check.maps;
      segments_right += check.segments_right + check.maps_right;
      EXPECT_GE(static_cast<double>(check.addresses_right), 0.997 * static_cast<double>(check.allocs))
          << entry.path();
      EXPECT_EQ(check.segments_right, check.segments) << entry.path();
      EXPECT_EQ(check.maps_right, check.maps) << entry.path();
    }
  }
  EXPECT_GT(devices, 15u);
  printf("replay: %lu of %lu addresses, %lu of %lu requests to the driver, %lu devices\n", right, allocs,
         segments_right, segments, devices);
}

std::string FragmentingTrace(bool expandable_would_help) {
  // Two blocks of 30 MiB in segments of their own, one freed; then 50 MiB do not fit 100 MiB of room.
  std::string events = JsonEvent("segment_alloc", 100 * kMiB, 30 * kMiB) + "," +
                       JsonEvent("alloc", 100 * kMiB, 30 * kMiB, 1) + "," +
                       JsonEvent("segment_alloc", 200 * kMiB, 30 * kMiB) + "," +
                       JsonEvent("alloc", 200 * kMiB, 30 * kMiB, 2) + ",";
  if (expandable_would_help) events += JsonEvent("alloc", 300 * kMiB, 2 * kMiB, 3) + ",";
  return events + JsonEvent("free_completed", 100 * kMiB, 30 * kMiB) + "," +
         JsonEvent("oom", 10 * kMiB, 90 * kMiB);
}

TEST(Replay, WhatIfDiesWhereTheRoomIsTooSmall) {
  const Snapshot snapshot = ReadText(JsonSnapshot(FragmentingTrace(false)));
  const Lifetimes lifetimes = FollowLifetimes(snapshot, 0);
  AllocatorConfig config;
  config.capacity = 70 * kMiB;
  EXPECT_GE(Replay(snapshot, lifetimes, config).died_at_event, 0);
  config.capacity = 130 * kMiB;
  const WhatIf roomy = Replay(snapshot, lifetimes, config);
  EXPECT_EQ(roomy.died_at_event, -1);
  EXPECT_EQ(roomy.oom_events_served, 1u);
}

TEST(Replay, RecordedSettingsReproduceThePeakOfReservedMemory) {
  std::string events;
  for (int i = 0; i < 20; ++i) {
    const uint64_t address = (100 + 40 * static_cast<uint64_t>(i)) * kMiB;
    events += (i ? "," : "") + JsonEvent("segment_alloc", address, 30 * kMiB) + "," +
              JsonEvent("alloc", address, 30 * kMiB, 1);
  }
  const Snapshot snapshot = ReadText(JsonSnapshot(events));
  const WhatIf same = Replay(snapshot, FollowLifetimes(snapshot, 0), AllocatorConfig{});
  EXPECT_EQ(same.stats.peak_reserved, 600 * kMiB);
  EXPECT_EQ(same.stats.driver_allocs, 20u);
}

TEST(Replay, SearchPutsTheBestFirst) {
  const Snapshot snapshot = ReadText(JsonSnapshot(FragmentingTrace(true)));
  const Recommendation found =
      SearchSettings(snapshot, FollowLifetimes(snapshot, 0), AllocatorConfig::kUnlimited);
  ASSERT_FALSE(found.outcomes.empty());
  for (size_t i = 1; i < found.outcomes.size(); ++i) {
    EXPECT_LE(found.outcomes[0].stats.peak_reserved, found.outcomes[i].stats.peak_reserved);
  }
  EXPECT_FALSE(found.limits.empty());
}

}  // namespace
}  // namespace lowtide::snapshot
