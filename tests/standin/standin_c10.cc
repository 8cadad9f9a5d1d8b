// Stands in for libc10 in the tests: the same functions under the same mangled names, called through slots.
#include <cstdint>
#include <cstdlib>
#include <new>

#define EXPORT __attribute__((visibility("default")))

namespace c10 {

struct Device {
  int8_t type, index;
};

EXPORT int64_t reports_seen = 0, ooms_seen = 0;

EXPORT void* alloc_cpu(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* block = nullptr;
  if (bytes > (1ull << 46) || posix_memalign(&block, 64, bytes) != 0) throw std::bad_alloc();
  return block;
}
EXPORT void free_cpu(void* block) { std::free(block); }
EXPORT void reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, Device) { ++reports_seen; }
EXPORT void reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device) { ++ooms_seen; }

// As CPUAllocator.cpp: the default allocator goes through the exported functions.
EXPORT void* default_allocate(size_t bytes) { return alloc_cpu(bytes); }
EXPORT void default_free(void* block) {
  reportMemoryUsageToProfiler(block, -1, 0, 0, Device{0, -1});  // the profiler's own account
  free_cpu(block);
}

}  // namespace c10
