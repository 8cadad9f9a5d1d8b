// libFuzzer on the reader of checkpoint files: any bytes are read or refused with an Error, within memory and time.
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "checkpoint/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto header = lowtide::checkpoint::ParseHeader(size, [&](uint64_t offset, void* to, uint64_t bytes) {
      if (offset > size || bytes > size - offset) return false;
      if (bytes) std::memcpy(to, data + offset, bytes);
      return true;
    });
    uint64_t at = 0;
    for (const auto& tensor : header.tensors) {
      if (tensor.begin != at || tensor.end < tensor.begin || tensor.end > size) __builtin_trap();
      at = tensor.end;
    }
  } catch (const lowtide::Error&) {
  }
  return 0;
}
