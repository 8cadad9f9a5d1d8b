// The mark behind a block: at the very end of what malloc gave, so that the pointer the user sees is untouched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "record/pointer_table.h"

namespace lowtide::record {

// Three words, written one by one: composed in memory and copied at once they would stall the processor.
struct Trailer {
  uint64_t size_and_phase;         // bytes asked for << 8 | phase of birth
  uint64_t birth_and_generation;   // step of birth << 32 | generation of the process: a forked child counts from nothing
  uint64_t magic;                  // over the pointer, both words, and a secret of the process
};

inline uint64_t TrailerMagic(const void* block, uint64_t first, uint64_t second, uint32_t secret) noexcept {
  const uint64_t mixed = (second << 31 | second >> 33) + (reinterpret_cast<uintptr_t>(block) ^ secret);
  const uint64_t h = (mixed ^ first) * 0x9E3779B97F4A7C15ull;
  return h ^ h >> 32;
}

inline uint8_t* TrailerPlace(void* block, size_t usable) noexcept {
  return static_cast<uint8_t*>(block) + ((usable - sizeof(Trailer)) & ~static_cast<size_t>(7));
}

inline void WriteTrailer(void* block, size_t usable, int64_t size, Birth birth, uint32_t generation,
                         uint32_t secret) noexcept {
  const uint64_t first = static_cast<uint64_t>(size) << 8 | birth.phase;
  const uint64_t second = static_cast<uint64_t>(birth.step) << 32 | generation;
  auto* words = reinterpret_cast<uint64_t*>(TrailerPlace(block, usable));
  __atomic_store_n(words, first, __ATOMIC_RELAXED);
  __atomic_store_n(words + 1, second, __ATOMIC_RELAXED);
  __atomic_store_n(words + 2, TrailerMagic(block, first, second, secret), __ATOMIC_RELAXED);
}

// Reads the mark and wipes it, so that the same memory, handed out by others, is not taken for ours. False when
// there is none of this process's.
inline bool TakeTrailer(void* block, size_t usable, uint32_t generation, uint32_t secret, BlockInfo* info) noexcept {
  if (usable < sizeof(Trailer)) return false;
  auto* words = reinterpret_cast<uint64_t*>(TrailerPlace(block, usable));
  const uint64_t first = __atomic_load_n(words, __ATOMIC_RELAXED), second = __atomic_load_n(words + 1, __ATOMIC_RELAXED);
  if (__atomic_load_n(words + 2, __ATOMIC_RELAXED) != TrailerMagic(block, first, second, secret)) return false;
  if (static_cast<uint32_t>(second) != generation) return false;
  __atomic_store_n(words + 2, 0, __ATOMIC_RELAXED);
  *info = {static_cast<int64_t>(first >> 8), {static_cast<uint32_t>(second >> 32), static_cast<uint8_t>(first)}, 0};
  return true;
}

}  // namespace lowtide::record
