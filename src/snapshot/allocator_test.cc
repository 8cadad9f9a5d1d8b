#include "snapshot/allocator.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lowtide::snapshot {
namespace {

constexpr uint64_t kMiB = 1 << 20;

AllocatorConfig Conf(const char* text, uint64_t capacity = AllocatorConfig::kUnlimited) {
  AllocatorConfig config;
  config.capacity = capacity;
  config.Apply(text);
  return config;
}

TEST(Allocator, RoundsRequests) {
  const Allocator plain(AllocatorConfig{});
  EXPECT_EQ(plain.Round(1), 512u);
  EXPECT_EQ(plain.Round(513), 1024u);
  const Allocator eighths(Conf("roundup_power2_divisions:8"));
  EXPECT_EQ(eighths.Round(1200 * 1024), 1280u * 1024);  // steps of 128 KiB above 1 MiB
  EXPECT_EQ(eighths.Round(2 * kMiB), 2 * kMiB);
  EXPECT_EQ(eighths.Round(700), 1024u);  // below 512 * 8: as without
  const Allocator mixed(Conf("roundup_power2_divisions:[1:1,2:4,>:8]"));
  EXPECT_EQ(mixed.Round(3 * kMiB + 1), 3 * kMiB + kMiB / 2);
}

TEST(Allocator, AsksTheDriverForWholeSegments) {
  const Allocator allocator(AllocatorConfig{});
  EXPECT_EQ(allocator.SegmentSize(512), 2 * kMiB);
  EXPECT_EQ(allocator.SegmentSize(kMiB + 512), 20 * kMiB);
  EXPECT_EQ(allocator.SegmentSize(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(allocator.SegmentSize(10 * kMiB + 512), 12 * kMiB);
}

TEST(Allocator, SplitsTheFrontAndCoalesces) {
  Allocator allocator(AllocatorConfig{});
  const auto a = allocator.Malloc(4 * kMiB, 0, 0), b = allocator.Malloc(4 * kMiB, 0, 0);
  EXPECT_EQ(allocator.stats().segments, 1u);
  EXPECT_EQ(allocator.block(b).address, allocator.block(a).address + 4 * kMiB);
  const uint64_t first = allocator.block(a).address;
  allocator.Free(a);
  allocator.Free(b);
  const auto whole = allocator.Malloc(20 * kMiB, 0, 0);
  EXPECT_EQ(allocator.block(whole).address, first);
  EXPECT_EQ(allocator.stats().reserved, 20 * kMiB);
}

TEST(Allocator, LeavesATailOfAMebibyteUnsplit) {
  Allocator allocator(AllocatorConfig{});
  EXPECT_EQ(allocator.block(allocator.Malloc(19 * kMiB, 0, 0)).size, 20 * kMiB);
  Allocator second(AllocatorConfig{});
  const auto id = second.AddSegment(0, 20 * kMiB, 0, 0, false);
  EXPECT_EQ(second.block(second.Allocate(second.segments()[id].first, 18 * kMiB)).size, 18 * kMiB);
}

TEST(Allocator, KeepsStreamsApart) {
  Allocator allocator(AllocatorConfig{});
  allocator.Free(allocator.Malloc(4 * kMiB, 1, 0));
  EXPECT_EQ(allocator.FindFree(4 * kMiB, 2, 0), Allocator::kNone);
  EXPECT_NE(allocator.FindFree(4 * kMiB, 1, 0), Allocator::kNone);
}

TEST(Allocator, DoesNotSplitAboveMaxSplitSize) {
  Allocator allocator(Conf("max_split_size_mb:32"));
  allocator.Free(allocator.Malloc(64 * kMiB, 0, 0));
  EXPECT_EQ(allocator.FindFree(4 * kMiB, 0, 0), Allocator::kNone);  // small requests keep off oversize blocks
  EXPECT_NE(allocator.FindFree(60 * kMiB, 0, 0), Allocator::kNone);  // within 20 MiB of the block
  EXPECT_EQ(allocator.FindFree(40 * kMiB, 0, 0), Allocator::kNone);
}

TEST(Allocator, ReleasesItsCacheBeforeItGivesUp) {
  Allocator allocator(Conf("", 64 * kMiB));
  allocator.Free(allocator.Malloc(40 * kMiB, 0, 0));
  EXPECT_NE(allocator.Malloc(50 * kMiB, 0, 0), Allocator::kNone);
  EXPECT_EQ(allocator.stats().retries, 1u);
  EXPECT_EQ(allocator.stats().reserved, 50 * kMiB);
  EXPECT_EQ(allocator.Malloc(20 * kMiB, 0, 0), Allocator::kNone);
}

TEST(Allocator, ExpandableSegmentsGrowByPagesAndReuseAcrossSizes) {
  Allocator allocator(Conf("expandable_segments:True", 100 * kMiB));
  const auto a = allocator.Malloc(30 * kMiB, 0, 0), b = allocator.Malloc(30 * kMiB, 0, 0);
  EXPECT_EQ(allocator.stats().reserved, 60 * kMiB);
  EXPECT_EQ(allocator.block(b).address, allocator.block(a).address + 30 * kMiB);
  allocator.Free(a);
  allocator.Free(b);
  EXPECT_NE(allocator.Malloc(90 * kMiB, 0, 0), Allocator::kNone);  // one range, where segments would not fit
  EXPECT_LE(allocator.stats().reserved, 100 * kMiB);
}

TEST(Allocator, CollectsGarbageAboveTheThreshold) {
  Allocator allocator(Conf("garbage_collection_threshold:0.5", 100 * kMiB));
  allocator.Free(allocator.Malloc(30 * kMiB, 0, 0));
  allocator.Free(allocator.Malloc(32 * kMiB, 1, 0));
  allocator.Malloc(24 * kMiB, 2, 0);
  EXPECT_EQ(allocator.stats().retries, 0u);
  EXPECT_LT(allocator.stats().reserved, 86 * kMiB);
}

TEST(Allocator, NamesASettingThatIsWrong) {
  for (const char* text :
       {"no_such:1", "max_split_size_mb:1", "max_split_size_mb:x", "garbage_collection_threshold:2",
        "expandable_segments:yes", "roundup_power2_divisions:3", "capacity:lots", "bare"}) {
    EXPECT_THROW(Conf(text), Error) << text;
  }
  EXPECT_EQ(Conf("max_split_size_mb:512,expandable_segments:True").Text(),
            "expandable_segments:True,max_split_size_mb:512");
  EXPECT_EQ(AllocatorConfig().Text(), "defaults");
}

// A recorded segment_free under blocks in use must leave the structure whole.
TEST(Allocator, SurvivesASegmentTakenAwayUnderABlock) {
  Allocator allocator(AllocatorConfig{});
  const auto id = allocator.Malloc(4 * kMiB, 0, 0);
  allocator.RemoveSegment(allocator.block(id).segment);
  allocator.Free(id);
  EXPECT_EQ(allocator.FindFree(4 * kMiB, 0, 0), Allocator::kNone);
}

}  // namespace
}  // namespace lowtide::snapshot
