#include "lint/atoms.h"

#include <cstring>

namespace lowtide::lint {
namespace {

constexpr const char* kKnownNames[] = {
    "",
#define X(name) #name,
#include "lint/names.inc"
#undef X
};

uint32_t QuickHash(std::string_view name) {
  uint64_t hash = name.size() * 0x9e3779b97f4a7c15u;
  const char* p = name.data();
  size_t left = name.size();
  for (; left >= 8; p += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  uint64_t word = 0;
  std::memcpy(&word, p, left);
  hash = (hash ^ word) * 0xff51afd7ed558ccdu;
  return static_cast<uint32_t>(hash >> 29);
}

}  // namespace

AtomTable::AtomTable() {
  static const AtomTable known = [] {
    AtomTable table(nullptr);
    return table;
  }();
  *this = known;
}

AtomTable::AtomTable(std::nullptr_t) {
  slots_.assign(2048, 0);
  names_.push_back({});
  hashes_.push_back(0);
  for (size_t i = 1; i < kKnownAtoms; ++i) Intern(kKnownNames[i]);
}

size_t AtomTable::Slot(std::string_view name, uint32_t hash) const {
  size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    Atom atom = slots_[slot];
    if (atom == kNoAtom || (hashes_[atom] == hash && names_[atom] == name)) return slot;
  }
}

Atom AtomTable::Intern(std::string_view name) {
  uint32_t hash = QuickHash(name);
  size_t slot = Slot(name, hash);
  if (slots_[slot] != kNoAtom) return slots_[slot];
  Atom atom = static_cast<Atom>(names_.size());
  names_.push_back(name);
  hashes_.push_back(hash);
  slots_[slot] = atom;
  if (names_.size() * 2 > slots_.size()) Grow();
  return atom;
}

Atom AtomTable::Find(std::string_view name) const { return slots_[Slot(name, QuickHash(name))]; }

void AtomTable::Grow() {
  std::vector<Atom> slots(slots_.size() * 2, kNoAtom);
  size_t mask = slots.size() - 1;
  for (Atom atom = 1; atom < names_.size(); ++atom) {
    size_t slot = hashes_[atom] & mask;
    while (slots[slot] != kNoAtom) slot = (slot + 1) & mask;
    slots[slot] = atom;
  }
  slots_ = std::move(slots);
}

}  // namespace lowtide::lint
