// A checkpoint file (docs/checkpoints.md): the layout of safetensors, so that any reader of that format opens it.
//
//   u64        length N of the header, little-endian
//   N bytes    JSON: {"__metadata__": {...}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...},
//              padded with spaces so that the data begins at a multiple of 4096 bytes
//   data       tensors without gaps, by element size from the largest down (each is aligned to its own element)
//   64 bytes   the last tensor, "lowtide.seal": a Seal
//
// __metadata__ holds strings: "lowtide.version", "lowtide.step", "lowtide.tree" (how the state is built from the
// tensors, JSON) and "lowtide.crc32c" (eight hex digits for each tensor but the seal, in the order of their data).
// The seal's own checksum covers the seal, which covers the header, which covers every tensor: no bit is uncovered.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lowtide::checkpoint {

inline constexpr char kSealName[] = "lowtide.seal";
inline constexpr char kSealMagic[8] = {'L', 'T', 'S', 'E', 'A', 'L', '1', '\n'};
inline constexpr uint64_t kMaxHeaderBytes = 1u << 30;
inline constexpr uint64_t kAlignment = 4096;

struct Seal {
  char magic[8];
  uint32_t version;       // 1
  uint32_t header_crc;    // of the length word and the header
  uint64_t file_bytes;    // the whole file
  uint64_t step;
  uint8_t nonce[16];
  uint8_t reserved[12];   // zero
  uint32_t crc;           // of the 60 bytes before
};
static_assert(sizeof(Seal) == 64);

struct Tensor {
  std::string name;
  std::string dtype;            // F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I16 I8 U64 U32 U16 U8 BOOL C64
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the data
  uint32_t crc = 0;
};

struct Header {
  std::string json;                             // as in the file
  uint64_t data_start = 0;                      // bytes from the start of the file
  uint64_t file_bytes = 0;
  std::map<std::string, std::string> metadata;
  std::vector<Tensor> tensors;                  // in the order of their data, the seal left out
  Seal seal{};
};

// Bytes of one element; 0 for a type that is not known.
uint64_t ElementBytes(const std::string& dtype);

}  // namespace lowtide::checkpoint
