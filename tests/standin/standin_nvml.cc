// Stands in for the driver's library: three devices, the last of which does not answer. $STANDIN_GPU_USED may name a file
// with the bytes in use of the first.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define EXPORT extern "C" __attribute__((visibility("default")))

struct Memory {
  unsigned long long total, free, used;
};

EXPORT int nvmlInit_v2() { return 0; }
EXPORT int nvmlShutdown() { return 0; }
EXPORT int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 3, 0; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<uintptr_t>(index + 1));
  return index == 2 ? 15 : 0;  // NVML_ERROR_GPU_IS_LOST
}
EXPORT int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  const auto number = reinterpret_cast<uintptr_t>(device);
  *memory = {80ull << 30, (80ull << 30) - (number << 30), number << 30};
  const char* path = number == 1 ? std::getenv("STANDIN_GPU_USED") : nullptr;
  if (std::FILE* file = path ? std::fopen(path, "r") : nullptr) {
    if (std::fscanf(file, "%llu", &memory->used) == 1) memory->free = memory->total - memory->used;
    std::fclose(file);
  }
  return 0;
}
EXPORT int nvmlDeviceGetName(void*, char* name, unsigned size) { return std::snprintf(name, size, "Test GPU"), 0; }
EXPORT int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  return std::snprintf(uuid, size, "GPU-%zu-abc", static_cast<size_t>(reinterpret_cast<uintptr_t>(device))), 0;
}
