#pragma once

#include <cstddef>
#include <cstdint>

namespace lowtide::record {

// A function that libraries call through a slot of their global offset table, and what to put there instead.
struct SlotHook {
  const char* prefix;    // the start of the mangled name: the rest changes with the function's signature
  void* replacement;
  bool skip_definer;     // leave the slot of the library that defines the function as it is
  void* original;        // out: where the function really is
  uint32_t slots;        // out: slots that now hold the replacement
};

// What became of one library: bit i of `hooks` is set when it has a slot of hook i.
struct PatchedLibrary {
  const char* name;
  uint32_t hooks;
};

struct PatchReport {
  PatchedLibrary libraries[32];
  uint32_t count = 0;
  uint32_t failed = 0;   // slots that could not be written
};

// Fills in `original` of each hook, and changes nothing. False when the definer is not loaded.
bool FindOriginalFunctions(const char* definer, SlotHook* hooks, size_t count) noexcept;

// Puts the replacements into the slots of every library loaded so far that needs `definer` ("libc10.so"), and into
// the definer's own, of the hooks whose `original` is known. May be repeated when more libraries were loaded.
// Returns false when the definer is not loaded.
bool PatchSlots(const char* definer, SlotHook* hooks, size_t count, PatchReport* report) noexcept;

// The slot of `library` for `symbol` (exact name), or null.
void** FindSlot(const char* library, const char* symbol, bool* read_only) noexcept;
// Writes a slot; `read_only` when the loader made its page so after start-up (RELRO): it is so again afterwards.
bool WriteGotSlot(void** slot, void* value, bool read_only) noexcept;

// Changes whenever a library is loaded.
uint64_t LoadedLibraries() noexcept;

}  // namespace lowtide::record
