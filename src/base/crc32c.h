#pragma once

#include <cstddef>
#include <cstdint>

namespace lowtide {

// CRC-32C (Castagnoli, RFC 3720 appendix B.4). `crc` continues an earlier call's result; 0 starts.
// Three interleaved streams where the processor has the instruction, a table elsewhere. Never throws.
uint32_t Crc32c(uint32_t crc, const void* data, size_t bytes) noexcept;

// Copies and returns the checksum of what was copied, reading `from` once. Long copies go past the cache.
uint32_t CopyCrc32c(void* to, const void* from, size_t bytes) noexcept;

}  // namespace lowtide
