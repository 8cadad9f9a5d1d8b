// One slot of a ring, written and read while the other side is at work.
#pragma once

#include <cstdint>
#include <cstring>

#include "lowtide/record/ring_format.h"

namespace lowtide::record {

template <typename Record>
inline constexpr size_t kSlotWords = sizeof(Record) / 8;

// A sequence lock (odd while being written): a reader that sees an odd or changed number, or a checksum that does
// not fit, has seen a torn slot. Words are stored one by one so that neither side ever needs a lock.
template <typename Record>
inline void WriteSlot(Slot<Record>* slot, uint64_t number, SectionId kind, const Record& record) noexcept {
  static_assert(sizeof(Record) % 8 == 0);
  uint64_t words[kSlotWords<Record>];
  std::memcpy(words, &record, sizeof(record));
  const uint64_t sequence = 2 * number + 2;
  const uint64_t rest = SlotChecksum(sequence, kind, words, kSlotWords<Record>) |
                        (static_cast<uint64_t>(kind) << 32) | (static_cast<uint64_t>(sizeof(Record)) << 48);
  auto* target = reinterpret_cast<uint64_t*>(slot);
  __atomic_store_n(target, sequence - 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  __atomic_store_n(target + 1, rest, __ATOMIC_RELAXED);
  for (size_t i = 0; i < kSlotWords<Record>; ++i) __atomic_store_n(target + 2 + i, words[i], __ATOMIC_RELAXED);
  __atomic_store_n(target, sequence, __ATOMIC_RELEASE);
}

// Whether the bytes of a slot, copied at one go, are a whole record; its number is sequence / 2 - 1.
template <typename Record>
inline bool SlotWhole(const Slot<Record>& slot, SectionId kind) noexcept {
  if (slot.header.sequence == 0 || slot.header.sequence % 2 || slot.header.kind != kind ||
      slot.header.payload_bytes != sizeof(Record)) {
    return false;
  }
  uint64_t words[kSlotWords<Record>];
  std::memcpy(words, &slot.record, sizeof(Record));
  return slot.header.checksum == SlotChecksum(slot.header.sequence, kind, words, kSlotWords<Record>);
}

// Copies a slot out of memory that a writer may be changing. False when torn.
template <typename Record>
inline bool ReadSlot(const Slot<Record>* slot, SectionId kind, Slot<Record>* copy) noexcept {
  auto* source = reinterpret_cast<const uint64_t*>(slot);
  uint64_t words[2 + kSlotWords<Record>];
  words[0] = __atomic_load_n(source, __ATOMIC_ACQUIRE);
  for (size_t i = 1; i < 2 + kSlotWords<Record>; ++i) words[i] = __atomic_load_n(source + i, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (__atomic_load_n(source, __ATOMIC_RELAXED) != words[0]) return false;
  std::memcpy(copy, words, sizeof(words));
  return SlotWhole(*copy, kind);
}

}  // namespace lowtide::record
