#include "record/usable_size.h"

#include <malloc.h>

#include <cstdlib>

#include "record/got.h"

namespace lowtide::record {
namespace {

using MemalignFunction = int (*)(void**, size_t, size_t);
MemalignFunction real_memalign = nullptr;
thread_local void* seen_block = nullptr;

int WatchMemalign(void** block, size_t alignment, size_t bytes) {
  const int failure = real_memalign(block, alignment, bytes);
  if (failure == 0) seen_block = *block;
  return failure;
}

}  // namespace

bool UsableSizeTold(const char* definer, AllocFunction alloc, FreeFunction release) noexcept {
  bool read_only = false;
  void** slot = FindSlot(definer, "posix_memalign", &read_only);
  if (slot == nullptr) return false;
  real_memalign = ::posix_memalign;
  void* before = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
  if (!WriteGotSlot(slot, reinterpret_cast<void*>(&WatchMemalign), read_only)) return false;
  bool told = true;
  constexpr size_t kSizes[] = {1, 100, 5000, 300000};
  for (size_t size : kSizes) {
    seen_block = nullptr;
    void* block = alloc(size);
    if (block == nullptr) continue;
    if (block != seen_block) told = false;
    if (told) {
      const size_t usable = ::malloc_usable_size(block);
      told = usable >= size && usable <= size + size / 4 + 8192;
    }
    release(block);
  }
  WriteGotSlot(slot, before, read_only);
  return told;
}

}  // namespace lowtide::record
