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

// Copies and returns the checksum of what was copied, in one pass. Long copies go past the cache.
uint32_t CopyCrc32c(void* to, const void* from, size_t bytes) noexcept;

// ---- implementation ----

namespace crc32c_internal {

inline constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected
// Bytes per stream and round: multiples of 64. Streams a page apart, so that the processor fetches ahead in each; short ones for
// what is left.
inline constexpr size_t kStream = 4096, kShortStream = 256;

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

// Three streams at a time, `stream` bytes each.
template <size_t stream>
__attribute__((target("sse4.2"))) uint32_t Rounds(uint32_t state, const uint8_t*& data, size_t& bytes) {
  static const Skip skip(stream);
  for (; bytes >= 3 * stream; data += 3 * stream, bytes -= 3 * stream) {
    uint64_t a = state, b = 0, c = 0;
    for (size_t line = 0; line < stream; line += 64) {
      for (size_t k = 0; k < 3; ++k) __builtin_prefetch(data + (3 + k) * stream + line);
      for (size_t i = line; i < line + 64; i += 8) {
        uint64_t x, y, z;
        std::memcpy(&x, data + i, 8);
        std::memcpy(&y, data + stream + i, 8);
        std::memcpy(&z, data + 2 * stream + i, 8);
        a = _mm_crc32_u64(a, x);
        b = _mm_crc32_u64(b, y);
        c = _mm_crc32_u64(c, z);
      }
    }
    state = skip(skip(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b)) ^ static_cast<uint32_t>(c);
  }
  return state;
}

inline __attribute__((target("sse4.2"))) uint32_t Interleaved(uint32_t state, const uint8_t* data, size_t bytes) {
  state = Rounds<kStream>(state, data, bytes);
  state = Rounds<kShortStream>(state, data, bytes);
  return Serial(state, data, bytes);
}

// One line of 64 bytes to a 64-byte aligned place, past the cache (the copy is not read again soon), with its checksum.
inline __attribute__((target("avx,sse4.2"), always_inline)) void CopyLine(uint8_t* to, const uint8_t* from, uint64_t& state) {
  __builtin_prefetch(from + 3 * kStream);
  const __m256 low = _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  const __m256 high = _mm256_loadu_ps(reinterpret_cast<const float*>(from + 32));
  for (size_t i = 0; i < 64; i += 8) {
    uint64_t word;
    std::memcpy(&word, from + i, 8);
    state = _mm_crc32_u64(state, word);
  }
  _mm256_stream_ps(reinterpret_cast<float*>(to), low);
  _mm256_stream_ps(reinterpret_cast<float*>(to + 32), high);
}

// Copies whole rounds of three streams with their checksum in one pass; `to` is 64-byte aligned.
inline __attribute__((target("avx,sse4.2"))) uint32_t CopyRounds(uint32_t state, uint8_t*& to, const uint8_t*& from, size_t& bytes) {
  static const Skip skip(kStream);
  for (; bytes >= 3 * kStream; to += 3 * kStream, from += 3 * kStream, bytes -= 3 * kStream) {
    uint64_t a = state, b = 0, c = 0;
    for (size_t line = 0; line < kStream; line += 64) {
      CopyLine(to + line, from + line, a);
      CopyLine(to + kStream + line, from + kStream + line, b);
      CopyLine(to + 2 * kStream + line, from + 2 * kStream + line, c);
    }
    state = skip(skip(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b)) ^ static_cast<uint32_t>(c);
  }
  _mm_sfence();
  return state;
}
#endif

inline uint32_t Update(uint32_t state, const uint8_t* data, size_t bytes) {
#if defined(__x86_64__)
  static const bool hardware = __builtin_cpu_supports("sse4.2");
  if (hardware) return Interleaved(state, data, bytes);
#endif
  return ByTable(state, data, bytes);
}

}  // namespace crc32c_internal

inline uint32_t Crc32c(uint32_t crc, const void* data, size_t bytes) noexcept {
  return ~crc32c_internal::Update(~crc, static_cast<const uint8_t*>(data), bytes);
}

inline uint32_t CopyCrc32c(void* to, const void* from, size_t bytes) noexcept {
  using namespace crc32c_internal;
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  uint32_t state = ~0u;
#if defined(__x86_64__)
  static const bool streams = __builtin_cpu_supports("avx") && __builtin_cpu_supports("sse4.2");
  if (streams && bytes >= 4 * kStream) {
    const size_t head = (64 - reinterpret_cast<uintptr_t>(out) % 64) % 64;
    state = Update(state, in, head);
    std::memcpy(out, in, head);
    out += head, in += head, bytes -= head;
    state = CopyRounds(state, out, in, bytes);
  }
#endif
  state = Update(state, in, bytes);
  std::memcpy(out, in, bytes);
  return ~state;
}

}  // namespace lowtide
