#include "lowtide/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace lowtide {
namespace {

uint32_t Slowly(const uint8_t* data, size_t bytes) {
  uint32_t state = ~0u;
  for (size_t i = 0; i < bytes; ++i) {
    state ^= data[i];
    for (int bit = 0; bit < 8; ++bit) state = state & 1 ? (state >> 1) ^ 0x82F63B78u : state >> 1;
  }
  return ~state;
}

TEST(Crc32c, KnownValues) {  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(0, "123456789", 9), 0xE3069283u);
  EXPECT_EQ(Crc32c(0, std::string(32, '\0').data(), 32), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(0, std::string(32, '\xff').data(), 32), 0x62A8AB43u);
  EXPECT_EQ(Crc32c(0, nullptr, 0), 0u);
}

TEST(Crc32c, EveryLengthAndAlignment) {
  std::mt19937 random(1);
  std::vector<uint8_t> data(20000);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  for (size_t length : {0u, 1u, 7u, 8u, 9u, 63u, 64u, 767u, 768u, 769u, 4096u, 12287u, 12288u, 12289u, 13055u, 13056u, 19990u}) {
    for (size_t offset : {0u, 1u, 5u}) {
      const uint32_t expected = Slowly(data.data() + offset, length);
      EXPECT_EQ(Crc32c(0, data.data() + offset, length), expected) << length << " at " << offset;
      EXPECT_EQ(Crc32c(Crc32c(0, data.data() + offset, length / 3), data.data() + offset + length / 3, length - length / 3),
                expected);
    }
  }
}

TEST(Crc32c, CopyCopiesAll) {
  std::mt19937 random(2);
  std::vector<uint8_t> from(300001);
  for (uint8_t& byte : from) byte = static_cast<uint8_t>(random());
  for (size_t length : {0u, 1u, 100u, 4096u, 12288u, 16383u, 16384u, 16385u, 24640u, 131073u, 299990u}) {
    for (size_t offset : {0u, 3u}) {
      std::vector<uint8_t> to(length + 80, 0xAB);
      EXPECT_EQ(CopyCrc32c(to.data() + 7, from.data() + offset, length), Slowly(from.data() + offset, length));
      EXPECT_TRUE(std::equal(to.begin() + 7, to.begin() + 7 + static_cast<long>(length), from.begin() + static_cast<long>(offset)));
      EXPECT_EQ(to[6], 0xAB);
      EXPECT_EQ(to[7 + length], 0xAB);
    }
  }
}

}  // namespace
}  // namespace lowtide
