#include "base/units.h"

#include <gtest/gtest.h>

namespace lowtide {
namespace {

TEST(Units, BytesKeepThreeDigits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(1000), "1.00 KB");
  EXPECT_EQ(FormatBytes(29626), "29.6 KB");
  EXPECT_EQ(FormatBytes(999600), "1.00 MB");
  EXPECT_EQ(FormatBytes(-1.5e9), "-1.50 GB");
  EXPECT_EQ(FormatRate(40960), "41.0 KB/step");
}

TEST(Units, Durations) {
  EXPECT_EQ(FormatDuration(0.85), "850 ms");
  EXPECT_EQ(FormatDuration(200), "3 min 20 s");
  EXPECT_EQ(FormatDuration(7500), "2 h 05 min");
}

TEST(Units, Counts) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
}

TEST(Units, ParseBytesReadsBothScales) {
  EXPECT_EQ(ParseBytes("24GB"), 24'000'000'000u);
  EXPECT_EQ(ParseBytes("24 GiB"), 25'769'803'776u);
  EXPECT_EQ(ParseBytes("1e9"), 1'000'000'000u);
  EXPECT_EQ(ParseBytes("80g"), 80'000'000'000u);
  EXPECT_FALSE(ParseBytes("much"));
  EXPECT_FALSE(ParseBytes("-1"));
  EXPECT_FALSE(ParseBytes("5 parsecs"));
}

}  // namespace
}  // namespace lowtide
