#include "record/pointer_table.h"

#include <sys/mman.h>

namespace lowtide::record {
namespace {

size_t StripeOf(uint64_t hash) noexcept { return hash >> 60; }

}  // namespace

void PointerTable::Put(Stripe& stripe, const Entry& entry) noexcept {
  size_t at = Hash(reinterpret_cast<const void*>(entry.key)) & stripe.mask;
  while (stripe.entries[at].key != 0 && stripe.entries[at].key != entry.key) at = (at + 1) & stripe.mask;
  if (stripe.entries[at].key == 0) ++stripe.used;
  stripe.entries[at] = entry;
}

bool PointerTable::Grow(Stripe& stripe) noexcept {
  const size_t capacity = stripe.entries == nullptr ? kFirst : 2 * (stripe.mask + 1);
  void* memory = ::mmap(nullptr, capacity * sizeof(Entry), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  Stripe bigger;
  bigger.mask = capacity - 1;
  bigger.entries = static_cast<Entry*>(memory);
  for (size_t i = 0; stripe.entries != nullptr && i <= stripe.mask; ++i) {
    if (stripe.entries[i].key != 0) Put(bigger, stripe.entries[i]);
  }
  if (stripe.entries != nullptr) ::munmap(stripe.entries, (stripe.mask + 1) * sizeof(Entry));
  stripe.entries = bigger.entries;
  stripe.mask = bigger.mask;
  stripe.used = bigger.used;
  return true;
}

bool PointerTable::Insert(const void* pointer, const BlockInfo& info) noexcept {
  Stripe& stripe = stripes_[StripeOf(Hash(pointer))];
  SpinLock hold(stripe.lock);
  const bool tight = stripe.entries == nullptr || stripe.used * 10ull >= (stripe.mask + 1) * 7;
  // A table that cannot grow takes blocks until it is full but for one place, which ends every search.
  if (tight && !Grow(stripe) && (stripe.entries == nullptr || stripe.used >= stripe.mask)) return false;
  Put(stripe, {reinterpret_cast<uintptr_t>(pointer), info});
  return true;
}

bool PointerTable::Remove(const void* pointer, BlockInfo* info) noexcept {
  const auto key = reinterpret_cast<uintptr_t>(pointer);
  Stripe& stripe = stripes_[StripeOf(Hash(pointer))];
  SpinLock hold(stripe.lock);
  if (stripe.entries == nullptr || key == 0) return false;
  size_t at = Hash(pointer) & stripe.mask;
  while (stripe.entries[at].key != key) {
    if (stripe.entries[at].key == 0) return false;
    at = (at + 1) & stripe.mask;
  }
  *info = stripe.entries[at].info;
  // Close the gap: whatever follows and does not sit before its home moves back (Knuth, TAOCP 6.4, algorithm R).
  for (size_t next = (at + 1) & stripe.mask; stripe.entries[next].key != 0; next = (next + 1) & stripe.mask) {
    const size_t home = Hash(reinterpret_cast<const void*>(stripe.entries[next].key)) & stripe.mask;
    if (((next - home) & stripe.mask) >= ((next - at) & stripe.mask)) {
      stripe.entries[at] = stripe.entries[next];
      at = next;
    }
  }
  stripe.entries[at].key = 0;
  --stripe.used;
  return true;
}

size_t PointerTable::size() const noexcept {
  size_t total = 0;
  for (const Stripe& stripe : stripes_) total += __atomic_load_n(&stripe.used, __ATOMIC_RELAXED);
  return total;
}

void PointerTable::Reset() noexcept {
  for (Stripe& stripe : stripes_) stripe.lock = 0, stripe.used = 0, stripe.mask = 0, stripe.entries = nullptr;
}

}  // namespace lowtide::record
