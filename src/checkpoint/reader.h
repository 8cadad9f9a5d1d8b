#pragma once

#include <functional>
#include <string>

#include "lowtide/checkpoint/format.h"

namespace lowtide::checkpoint {

// Reads `bytes` at `offset` into `to`; false when there are fewer.
using ReadAt = std::function<bool(uint64_t offset, void* to, uint64_t bytes)>;

// Parses and checks everything but the tensors' contents: sizes, names, offsets without gaps or overlaps, the seal and
// the header's checksum. Throws Error (without a file name) that says what is wrong and at which byte. No length that
// the file claims is allocated before it was held against `file_bytes`.
Header ParseHeader(uint64_t file_bytes, const ReadAt& read);

// The header of a file. Throws Error.
Header ReadHeader(const std::string& path);

// Reads all of the file and holds every tensor's checksum against its contents. Throws Error naming the first tensor
// that differs.
Header VerifyFile(const std::string& path);

}  // namespace lowtide::checkpoint
