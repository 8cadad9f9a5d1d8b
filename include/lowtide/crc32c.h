#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lowtide {

// CRC-32C (Castagnoli, RFC 3720 appendix B.4). `crc` continues an earlier call's result; 0 starts.
// Three interleaved streams where the processor has the instruction, a table elsewhere. Never throws.
uint32_t Crc32c(uint32_t crc, const void* data, size_t bytes) noexcept;

// Copies and returns the checksum of what was copied, reading `from` once. Long copies go past the cache.
uint32_t CopyCrc32c(void* to, const void* from, size_t bytes) noexcept;

// ---- implementation ----

namespace crc32c_internal {

inline constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected
inline constexpr size_t kStream = 1360;              // bytes per stream and round: a multiple of 8, three fit in the L1 cache

inline constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value & 1 ? (value >> 1) ^ kPolynomial : value >> 1;
    table[i] = value;
  }
  return table;
}
inline constexpr auto kTable = MakeTable();

inline uint32_t ByTable(uint32_t state, const uint8_t* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) state = (state >> 8) ^ kTable[(state ^ data[i]) & 255];
  return state;
}

#if defined(__x86_64__)
// The state after `kStream` (or twice that) zero bytes: a linear map of the state, so four tables of 256 entries.
struct Skip {
  uint32_t table[4][256];
  explicit Skip(size_t bytes) {
    uint32_t basis[32];
    for (int bit = 0; bit < 32; ++bit) {
      uint32_t state = 1u << bit;
      for (size_t i = 0; i < bytes; ++i) state = (state >> 8) ^ kTable[state & 255];
      basis[bit] = state;
    }
    for (int byte = 0; byte < 4; ++byte) {
      for (uint32_t value = 0; value < 256; ++value) {
        uint32_t out = 0;
        for (int bit = 0; bit < 8; ++bit) {
          if (value >> bit & 1) out ^= basis[8 * byte + bit];
        }
        table[byte][value] = out;
      }
    }
  }
  uint32_t operator()(uint32_t state) const {
    return table[0][state & 255] ^ table[1][state >> 8 & 255] ^ table[2][state >> 16 & 255] ^ table[3][state >> 24];
  }
};

inline __attribute__((target("sse4.2"))) uint32_t Serial(uint32_t state, const uint8_t* data, size_t bytes) {
  uint64_t wide = state;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  state = static_cast<uint32_t>(wide);
  for (; bytes; --bytes, ++data) state = _mm_crc32_u8(state, *data);
  return state;
}

inline __attribute__((target("sse4.2"))) uint32_t Interleaved(uint32_t state, const uint8_t* data, size_t bytes) {
  static const Skip skip(kStream);
  while (bytes >= 3 * kStream) {
    uint64_t a = state, b = 0, c = 0;
    for (size_t i = 0; i < kStream; i += 8) {
      uint64_t x, y, z;
      std::memcpy(&x, data + i, 8);
      std::memcpy(&y, data + kStream + i, 8);
      std::memcpy(&z, data + 2 * kStream + i, 8);
      a = _mm_crc32_u64(a, x);
      b = _mm_crc32_u64(b, y);
      c = _mm_crc32_u64(c, z);
    }
    state = skip(skip(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b)) ^ static_cast<uint32_t>(c);
    data += 3 * kStream;
    bytes -= 3 * kStream;
  }
  return Serial(state, data, bytes);
}

// Whole 64-byte lines to a 64-byte aligned place, past the cache: the copy is not read again soon.
inline __attribute__((target("avx"))) void StreamLines(uint8_t* to, const uint8_t* from, size_t lines) {
  for (; lines; --lines, to += 64, from += 64) {
    const __m256 low = _mm256_loadu_ps(reinterpret_cast<const float*>(from));
    const __m256 high = _mm256_loadu_ps(reinterpret_cast<const float*>(from + 32));
    _mm256_stream_ps(reinterpret_cast<float*>(to), low);
    _mm256_stream_ps(reinterpret_cast<float*>(to + 32), high);
  }
  _mm_sfence();
}
#endif

inline uint32_t Update(uint32_t state, const uint8_t* data, size_t bytes) {
#if defined(__x86_64__)
  static const bool hardware = __builtin_cpu_supports("sse4.2");
  if (hardware) return Interleaved(state, data, bytes);
#endif
  return ByTable(state, data, bytes);
}

inline void Copy(uint8_t* to, const uint8_t* from, size_t bytes) {
#if defined(__x86_64__)
  static const bool streams = __builtin_cpu_supports("avx");
  const size_t head = (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64;
  if (streams && bytes >= 4096) {
    std::memcpy(to, from, head);
    const size_t lines = (bytes - head) / 64;
    StreamLines(to + head, from + head, lines);
    std::memcpy(to + head + lines * 64, from + head + lines * 64, bytes - head - lines * 64);
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace crc32c_internal

inline uint32_t Crc32c(uint32_t crc, const void* data, size_t bytes) noexcept {
  return ~crc32c_internal::Update(~crc, static_cast<const uint8_t*>(data), bytes);
}

inline uint32_t CopyCrc32c(void* to, const void* from, size_t bytes) noexcept {
  constexpr size_t kPiece = 1 << 17;  // checksummed while in the second-level cache
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  uint32_t state = ~0u;
  while (bytes) {
    const size_t piece = bytes < kPiece ? bytes : kPiece;
    state = crc32c_internal::Update(state, in, piece);
    crc32c_internal::Copy(out, in, piece);
    out += piece;
    in += piece;
    bytes -= piece;
  }
  return ~state;
}

}  // namespace lowtide
