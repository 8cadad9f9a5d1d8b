// The mark behind a block: at the very end of what malloc gave, so that the pointer the user sees is untouched.
#pragma once

#include <cstdint>
#include <cstring>

#include "record/pointer_table.h"

namespace lowtide::record {

struct Trailer {
  uint64_t size_and_phase;  // bytes asked for << 8 | phase of birth
  uint32_t birth_step;
  uint32_t generation;      // of the process that made it: a forked child counts from nothing
  uint64_t magic;           // over the pointer, every field, and a secret of the process
};

inline uint64_t TrailerMagic(const void* block, const Trailer& trailer, uint32_t secret) noexcept {
  uint64_t h = (reinterpret_cast<uintptr_t>(block) ^ 0xA0761D6478BD642Full) * 0x9E3779B97F4A7C15ull;
  h = (h ^ (h >> 32) ^ trailer.size_and_phase) * 0xE7037ED1A0B428DBull;
  h ^= (static_cast<uint64_t>(trailer.birth_step) << 32) + trailer.generation + secret;
  h *= 0x8EBC6AF09C88C6E3ull;
  return h ^ (h >> 29);
}

inline uint8_t* TrailerPlace(void* block, size_t usable) noexcept {
  return static_cast<uint8_t*>(block) + ((usable - sizeof(Trailer)) & ~static_cast<size_t>(7));
}

inline void WriteTrailer(void* block, size_t usable, int64_t size, Birth birth, uint32_t generation,
                         uint32_t secret) noexcept {
  Trailer trailer{static_cast<uint64_t>(size) << 8 | birth.phase, birth.step, generation, 0};
  trailer.magic = TrailerMagic(block, trailer, secret);
  std::memcpy(TrailerPlace(block, usable), &trailer, sizeof(trailer));
}

// Reads the mark and wipes it, so that the same memory, handed out by others, is not taken for ours. False when
// there is none of this process's.
inline bool TakeTrailer(void* block, size_t usable, uint32_t generation, uint32_t secret, BlockInfo* info) noexcept {
  if (usable < sizeof(Trailer)) return false;
  Trailer trailer;
  uint8_t* place = TrailerPlace(block, usable);
  std::memcpy(&trailer, place, sizeof(trailer));
  if (trailer.magic != TrailerMagic(block, trailer, secret) || trailer.generation != generation) return false;
  const uint64_t wiped = 0;
  std::memcpy(place + offsetof(Trailer, magic), &wiped, sizeof(wiped));
  *info = {static_cast<int64_t>(trailer.size_and_phase >> 8), {trailer.birth_step, static_cast<uint8_t>(trailer.size_and_phase)}, 0};
  return true;
}

}  // namespace lowtide::record
