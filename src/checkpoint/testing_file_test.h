// Small checkpoint files for tests, good and bad: the header is given as text, checksums and seal are made to fit.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "lowtide/checkpoint/format.h"
#include "lowtide/crc32c.h"

namespace lowtide::checkpoint {

// A file whose seal fits: so that it is the checks behind the seal that are tried. `data` comes without the seal.
inline std::string Sealed(std::string json, const std::string& data, uint64_t step = 7, size_t alignment = kAlignment) {
  json.resize((8 + json.size() + alignment - 1) / alignment * alignment - 8, ' ');
  const uint64_t length = json.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  out += json;
  const std::string head = out;
  out += data;
  Seal seal{};
  std::memcpy(seal.magic, kSealMagic, sizeof kSealMagic);
  seal.version = 1;
  seal.header_crc = Crc32c(0, head.data(), head.size());
  seal.file_bytes = out.size() + sizeof seal;
  seal.step = step;
  seal.crc = Crc32c(0, &seal, 60);
  out.append(reinterpret_cast<const char*>(&seal), sizeof seal);
  return out;
}

inline std::string Hex(uint32_t crc) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", crc);
  return text;
}

// Two tensors, F32 [2, 3] and I8 [5]; the header is as short as the format allows (alignment 64), so that every byte can
// be tried.
inline std::string Good(size_t alignment = 64, uint64_t step = 7) {
  std::string weights(24, 'w'), bytes = "abcde";
  const std::string crcs = Hex(Crc32c(0, weights.data(), 24)) + Hex(Crc32c(0, bytes.data(), 5));
  const std::string json = R"({"__metadata__":{"lowtide.version":"1","lowtide.tree":"{}","lowtide.crc32c":")" + crcs +
                           R"("},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                           R"("b":{"dtype":"I8","shape":[5],"data_offsets":[24,29]},)"
                           R"("lowtide.seal":{"dtype":"U8","shape":[64],"data_offsets":[29,93]}})";
  return Sealed(json, weights + bytes, step, alignment);
}

inline void Write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace lowtide::checkpoint
