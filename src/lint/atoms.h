#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace lowtide::lint {

// An identifier of one file as a small number. Names that rules know have the same number in every file.
using Atom = uint32_t;

enum KnownAtom : Atom {
  kNoAtom = 0,
#define X(name) kA_##name,
#include "lint/names.inc"
#undef X
  kKnownAtoms,
};

// 64-bit FNV-1a: names across files.
constexpr uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

class AtomTable {
 public:
  AtomTable();  // holds the known names
  Atom Intern(std::string_view name);
  Atom Find(std::string_view name) const;  // kNoAtom when absent
  std::string_view Text(Atom atom) const { return names_[atom]; }
  size_t size() const { return names_.size(); }

 private:
  explicit AtomTable(std::nullptr_t);  // the known names, interned anew
  void Grow();
  size_t Slot(std::string_view name, uint32_t hash) const;

  std::vector<std::string_view> names_;
  std::vector<uint32_t> hashes_;
  std::vector<Atom> slots_;  // open addressing, a power of two
};

}  // namespace lowtide::lint
