// Who is still alive, by step of birth: counted where tensors are made and freed, in the ring file itself.
#pragma once

#include <sched.h>

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#endif

#include <cstdint>

#include "lowtide/record/ring_format.h"

namespace lowtide::record {

// When and in what phase a block was born.
struct Birth {
  uint32_t step;
  uint8_t phase;  // below kLedgerPhases
};

// What the hooks read on every call, and only steps and marks change.
struct alignas(64) LedgerClock {
  uint32_t step = 0;        // steps ended
  uint32_t shift = 0;       // births of 2^shift steps share a cell
  uint8_t phase = 0;
  uint32_t generation = 0;  // of this process: a forked child is another one
  Birth now() const noexcept {
    return {__atomic_load_n(&step, __ATOMIC_ACQUIRE), __atomic_load_n(&phase, __ATOMIC_RELAXED)};
  }
};

// Counters with one writer that others read: a plain add, stored whole.
inline void Bump(int64_t& counter, int64_t by) noexcept {
  __atomic_store_n(&counter, __atomic_load_n(&counter, __ATOMIC_RELAXED) + by, __ATOMIC_RELAXED);
}
inline void Bump(uint64_t& counter) noexcept {
  __atomic_store_n(&counter, __atomic_load_n(&counter, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}
inline int64_t Load(const int64_t& counter) noexcept { return __atomic_load_n(&counter, __ATOMIC_RELAXED); }

// Bytes and blocks that stand side by side, both counted with one addition. Readers see each of the two whole.
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
using Change = __m128i;
inline Change MakeChange(int64_t bytes, int64_t blocks) noexcept { return _mm_set_epi64x(blocks, bytes); }
inline void BumpPair(int64_t& bytes, Change by) noexcept {
  auto* pair = reinterpret_cast<__m128i*>(&bytes);
  _mm_store_si128(pair, _mm_add_epi64(_mm_load_si128(pair), by));
}
#else
struct Change {
  int64_t bytes, blocks;
};
inline Change MakeChange(int64_t bytes, int64_t blocks) noexcept { return {bytes, blocks}; }
inline void BumpPair(int64_t& bytes, Change by) noexcept {
  Bump(bytes, by.bytes);
  Bump(*(&bytes + 1), by.blocks);
}
#endif

class SpinLock {
 public:
  explicit SpinLock(uint32_t& word) noexcept : word_(word) {
    for (uint32_t spins = 0; __atomic_exchange_n(&word_, 1, __ATOMIC_ACQUIRE) != 0; ++spins) {
      if (spins > 64) ::sched_yield();
    }
  }
  ~SpinLock() { __atomic_store_n(&word_, 0, __ATOMIC_RELEASE); }
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

 private:
  uint32_t& word_;
};

// Brings a shard's cells to a coarser grouping. By its writer.
void Regroup(LedgerShard& shard, uint32_t shift) noexcept;

// Adds (sign 1) or takes away (sign -1) one block. By the shard's writer.
template <int64_t sign>
inline void Count(LedgerShard& shard, const LedgerClock& clock, int64_t size, Birth birth) noexcept {
  const uint32_t shift = __atomic_load_n(&clock.shift, __ATOMIC_RELAXED);
  if (__builtin_expect(shard.shift != shift, 0)) Regroup(shard, shift);
  const Change change = MakeChange(sign * size, sign);
  BumpPair(shard.bytes, change);
  if (sign > 0) Bump(shard.births);
  const uint32_t bucket = birth.step >> shift;
  BumpPair(shard.cells[birth.phase % kLedgerPhases][bucket < kLedgerBuckets ? bucket : kLedgerBuckets - 1].bytes,
           change);
  BumpPair(shard.sizes[SizeClassOf(static_cast<uint64_t>(size))].bytes, change);
}

// The greatest total since the last step. `total` is what is alive after the change.
inline void NotePeak(LedgerShard& shard, uint64_t step, int64_t total) noexcept {
  if (shard.peak_step == step && total <= shard.peak) return;
  __atomic_store_n(&shard.peak, total, __ATOMIC_RELAXED);
  __atomic_store_n(&shard.peak_step, step, __ATOMIC_RELAXED);
}

}  // namespace lowtide::record
