#pragma once

#include <cstddef>
#include <cstdint>

#include "record/ledger.h"

namespace lowtide::record {

// What is known of a block that carries no mark of its own: device memory, shared memory, foreign allocators.
struct BlockInfo {
  int64_t size;
  Birth birth;
  uint8_t pool;
};

// Open addressing keyed by pointer, in stripes with a lock each. Its memory comes from mmap, so that it may be used
// inside an allocator; it never shrinks. Every call is safe from any thread.
class PointerTable {
 public:
  // False when no memory could be had: the block is not in the table then.
  bool Insert(const void* pointer, const BlockInfo& info) noexcept;
  // Takes the block out; false when it was not in.
  bool Remove(const void* pointer, BlockInfo* info) noexcept;
  size_t size() const noexcept;
  // Forgets everything without taking a lock: for a forked child.
  void Reset() noexcept;

 private:
  struct Entry {
    uintptr_t key;  // 0: empty
    BlockInfo info;
  };
  struct alignas(64) Stripe {
    uint32_t lock = 0;
    uint32_t used = 0;
    size_t mask = 0;  // capacity - 1
    Entry* entries = nullptr;
  };
  static constexpr size_t kStripes = 16;
  static constexpr size_t kFirst = 512;

  static uint64_t Hash(const void* pointer) noexcept {
    uint64_t bits = reinterpret_cast<uintptr_t>(pointer) * 0x9E3779B97F4A7C15ull;
    return bits ^ (bits >> 29);
  }
  static bool Grow(Stripe& stripe) noexcept;
  static void Put(Stripe& stripe, const Entry& entry) noexcept;

  Stripe stripes_[kStripes];
};

}  // namespace lowtide::record
