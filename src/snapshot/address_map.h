#pragma once

#include <cstdint>
#include <cstring>

#include "snapshot/hash.h"
#include "snapshot/pod_vector.h"

namespace lowtide::snapshot {

// Address -> 32-bit number, for the blocks alive at a moment: linear probing, deletion by shifting back, so
// that a million allocations at a few thousand live addresses stay in the cache.
class AddressMap {
 public:
  static constexpr uint32_t kNone = 0xffffffff;

  AddressMap() : seed_(HashSeed()) { Resize(1024); }

  size_t size() const { return used_; }
  uint32_t Find(uint64_t address) const {
    for (size_t i = Home(address);; i = Next(i)) {
      if (slots_[i].value == kNone) return kNone;
      if (slots_[i].address == address) return slots_[i].value;
    }
  }
  // Replaces the number of an address that is there; returns the old one or kNone.
  uint32_t Put(uint64_t address, uint32_t value) {
    if (used_ * 2 >= slots_.size()) Resize(slots_.size() * 2);
    for (size_t i = Home(address);; i = Next(i)) {
      Slot& slot = slots_[i];
      if (slot.value != kNone && slot.address != address) continue;
      const uint32_t old = slot.value;
      if (old == kNone) ++used_;
      slot = {address, value};
      return old;
    }
  }
  // Removes an address; returns its number or kNone.
  uint32_t Take(uint64_t address) {
    size_t i = Home(address);
    while (slots_[i].value != kNone && slots_[i].address != address) i = Next(i);
    const uint32_t value = slots_[i].value;
    if (value == kNone) return kNone;
    --used_;
    for (size_t j = Next(i);; j = Next(j)) {
      if (slots_[j].value == kNone) break;
      const size_t home = Home(slots_[j].address);
      const bool stays = i <= j ? (i < home && home <= j) : (i < home || home <= j);
      if (stays) continue;
      slots_[i] = slots_[j];
      i = j;
    }
    slots_[i].value = kNone;
    return value;
  }
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Slot& slot : slots_) {
      if (slot.value != kNone) visit(slot.address, slot.value);
    }
  }

 private:
  struct Slot {
    uint64_t address;
    uint32_t value;
  };
  size_t Home(uint64_t address) const { return HashInteger(address, seed_) & (slots_.size() - 1); }
  size_t Next(size_t i) const { return (i + 1) & (slots_.size() - 1); }
  void Resize(size_t size) {
    PodVector<Slot> old = std::move(slots_);
    slots_ = PodVector<Slot>();
    slots_.resize(size);
    std::memset(static_cast<void*>(slots_.data()), 0xff, size * sizeof(Slot));
    for (const Slot& slot : old) {
      if (slot.value == kNone) continue;
      size_t i = Home(slot.address);
      while (slots_[i].value != kNone) i = Next(i);
      slots_[i] = slot;
    }
  }

  PodVector<Slot> slots_;
  size_t used_ = 0;
  uint64_t seed_;
};

}  // namespace lowtide::snapshot
