#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace lowtide::heap {

inline constexpr size_t kHugePage = size_t{2} << 20;
inline constexpr size_t kLargeArray = size_t{1} << 20;  // from this size on an array has mappings of its own

// Fresh zeroed memory on huge pages where the kernel grants them: a third of a census was spent in faults of small
// ones. Address space that is never touched costs nothing. `bytes` must be a multiple of kHugePage.
inline void* MapHuge(size_t bytes) {
  char* raw = static_cast<char*>(mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (raw == MAP_FAILED) throw std::bad_alloc();
  const size_t skip = -reinterpret_cast<uintptr_t>(raw) & (kHugePage - 1);
  if (skip) munmap(raw, skip);
  munmap(raw + skip + bytes, kHugePage - skip);
  madvise(raw + skip, bytes, MADV_HUGEPAGE);  // a wish
  return raw + skip;
}

// The allocator of arrays with an entry for each object of a process.
template <typename T>
struct HugePages {
  using value_type = T;

  HugePages() = default;
  template <typename U>
  HugePages(const HugePages<U>&) {}

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    return static_cast<T*>(bytes < kLargeArray ? ::operator new(bytes) : MapHuge(Rounded(bytes)));
  }
  void deallocate(T* array, size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes < kLargeArray)
      ::operator delete(array);
    else
      munmap(array, Rounded(bytes));
  }

  template <typename U>
  bool operator==(const HugePages<U>&) const {
    return true;
  }

 private:
  static size_t Rounded(size_t bytes) { return (bytes + kHugePage - 1) & ~(kHugePage - 1); }
};

template <typename T>
using Array = std::vector<T, HugePages<T>>;

}  // namespace lowtide::heap
