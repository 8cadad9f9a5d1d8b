#pragma once

#include <cstdint>
#include <cstring>

namespace lowtide::snapshot {

// A 64-bit hash of a byte run by folded 64x64 multiplications, eight bytes at a time; for hash tables inside
// one process, seeded per process elsewhere, so that a hostile file cannot aim at collisions it has computed.
inline uint64_t Fold(uint64_t a, uint64_t b) {
  const __uint128_t product = static_cast<__uint128_t>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t HashSeed();

inline uint64_t HashBytes(const void* data, size_t size, uint64_t seed) {
  const auto* p = static_cast<const uint8_t*>(data);
  uint64_t h = seed ^ (size * 0x9e3779b97f4a7c15ull);
  while (size >= 16) {
    uint64_t a, b;
    std::memcpy(&a, p, 8);
    std::memcpy(&b, p + 8, 8);
    h = Fold(a ^ 0xa0761d6478bd642full, b ^ h);
    p += 16;
    size -= 16;
  }
  uint64_t a = 0, b = 0;
  if (size > 8) {
    std::memcpy(&a, p, 8);
    std::memcpy(&b, p + 8, size - 8);
  } else if (size) {
    std::memcpy(&a, p, size);
  }
  return Fold(a ^ 0xe7037ed1a0b428dbull, b ^ h ^ 0x8ebc6af09c88c6e3ull);
}

inline uint64_t HashInteger(uint64_t value, uint64_t seed) {
  return Fold(value ^ seed, 0x9e3779b97f4a7c15ull ^ (seed >> 7));
}

}  // namespace lowtide::snapshot
