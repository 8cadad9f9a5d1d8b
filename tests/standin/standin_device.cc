// Stands in for libc10_cuda and libtorch_cpu: callers of what libc10 exports.
#include <cstddef>
#include <cstdint>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace c10 {
struct Device {
  int8_t type, index;
};
void* alloc_cpu(size_t);
void free_cpu(void*);
void reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, Device);
void reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device);
}  // namespace c10

namespace {
int64_t allocated[16], reserved[16];
}

// As CUDACachingAllocator's malloc and free: the block's rounded size, and the device's sums after it.
EXPORT void device_malloc(void* block, int64_t bytes, int index) {
  allocated[index] += bytes;
  if (allocated[index] > reserved[index]) reserved[index] = allocated[index];
  c10::reportMemoryUsageToProfiler(block, bytes, static_cast<size_t>(allocated[index]),
                                   static_cast<size_t>(reserved[index]), {1, static_cast<int8_t>(index)});
}
EXPORT void device_free(void* block, int64_t bytes, int index) {
  allocated[index] -= bytes;
  c10::reportMemoryUsageToProfiler(block, -bytes, static_cast<size_t>(allocated[index]),
                                   static_cast<size_t>(reserved[index]), {1, static_cast<int8_t>(index)});
}
EXPORT void device_oom(int64_t bytes, int index) {
  c10::reportOutOfMemoryToProfiler(bytes, static_cast<size_t>(allocated[index]),
                                   static_cast<size_t>(reserved[index]), {1, static_cast<int8_t>(index)});
}
// As MapAllocator: a cpu device, outside libc10.
EXPORT void map_shared(void* block, int64_t bytes) {
  c10::reportMemoryUsageToProfiler(block, bytes, 0, static_cast<size_t>(bytes), {0, -1});
}
EXPORT void* direct_alloc(size_t bytes) { return c10::alloc_cpu(bytes); }
// A pointer to the function, as a deleter is passed around (a GLOB_DAT slot).
EXPORT void (*direct_deleter())(void*) { return &c10::free_cpu; }
EXPORT void direct_free(void* block) { c10::free_cpu(block); }
EXPORT int64_t device_allocated(int index) { return allocated[index]; }
EXPORT int64_t device_reserved(int index) { return reserved[index]; }
EXPORT int64_t direct_alloc_throws(size_t bytes) {
  try {
    c10::free_cpu(c10::alloc_cpu(bytes));
    return 0;
  } catch (...) {
    return 1;
  }
}
