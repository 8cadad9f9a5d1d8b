// A checkpoint file built in memory, and read back with every checksum verified; for programs that link nothing of
// lowtide's. The layout is format.h's. Failures are std::runtime_error.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lowtide/checkpoint/file_writer.h"
#include "lowtide/checkpoint/format.h"
#include "lowtide/checkpoint/json.h"
#include "lowtide/crc32c.h"

namespace lowtide::checkpoint {

// A tensor to be stored: `data` is dense and stays alive until Fill.
struct Source {
  std::string name, dtype;
  std::vector<uint64_t> shape;
  const void* data = nullptr;
  uint64_t bytes = 0, element_bytes = 1;
};

// Staging memory that is kept between saves.
class Image {
 public:
  Image() = default;
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  ~Image() { FreeStaging(memory_, capacity_); }

  // Lays the file out, copies every tensor with its checksum, seals it. `tree`: the state as JSON (docs/checkpoints.md).
  void Fill(std::vector<Source> sources, const std::string& tree, uint64_t step, const std::string& reason);
  const void* data() const { return memory_; }
  size_t bytes() const { return bytes_; }

 private:
  void Reserve(size_t bytes);
  void Seal(uint64_t step, const std::string& header);

  void* memory_ = nullptr;
  size_t capacity_ = 0, bytes_ = 0;
};

// A file opened for reading.
class FileReader {
 public:
  explicit FileReader(const std::string& path);
  FileReader(const FileReader&) = delete;
  ~FileReader() { ::close(fd_); }

  const Header& header() const { return header_; }
  const Json& tree() const { return tree_; }
  const Tensor* Find(const std::string& name) const {
    for (const Tensor& tensor : header_.tensors) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  // Reads a tensor's bytes; throws when its checksum differs.
  void Read(const Tensor& tensor, void* to) const;
  // All of the file against all of its checksums.
  void Verify() const;

 private:
  [[noreturn]] void Fail(const std::string& what) const { throw std::runtime_error(path_ + ": " + what); }
  void Bytes(uint64_t offset, void* to, uint64_t count) const;
  void ReadSeal();
  void ReadHeader();
  Tensor ReadTensor(const std::string& name, const Json& entry) const;

  std::string path_;
  int fd_ = -1;
  Header header_;
  Json tree_;
};

// ---- implementation ----

inline void Image::Reserve(size_t bytes) {
  if (bytes <= capacity_) return;
  FreeStaging(memory_, capacity_);
  capacity_ = 0;
  memory_ = AllocateStaging(bytes);
  if (memory_ == nullptr) throw std::runtime_error("no memory for a checkpoint of " + std::to_string(bytes) + " bytes");
  capacity_ = bytes;
}

inline void Image::Fill(std::vector<Source> sources, const std::string& tree, uint64_t step, const std::string& reason) {
  // Larger elements first: no gaps, and each tensor aligned to its own element. Readers sort by place, then name.
  std::stable_sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return a.element_bytes > b.element_bytes; });
  std::string entries;
  uint64_t at = 0;
  std::vector<std::tuple<uint64_t, uint64_t, std::string, size_t>> order;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Source& source = sources[i];
    std::string shape;
    for (uint64_t size : source.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
    entries += "," + Quoted(source.name) + ":{\"dtype\":" + Quoted(source.dtype) + ",\"shape\":[" + shape + "],\"data_offsets\":[" +
               std::to_string(at) + "," + std::to_string(at + source.bytes) + "]}";
    order.emplace_back(at, at + source.bytes, source.name, i);
    at += source.bytes;
  }
  std::sort(order.begin(), order.end());
  entries += ",\"" + std::string(kSealName) + "\":{\"dtype\":\"U8\",\"shape\":[64],\"data_offsets\":[" + std::to_string(at) + "," +
             std::to_string(at + sizeof(checkpoint::Seal)) + "]}}";
  const std::string mark(8 * sources.size(), '%');
  std::string header = "{\"__metadata__\":{\"format\":\"pt\",\"lowtide.version\":\"1\",\"lowtide.step\":\"" + std::to_string(step) +
                       "\",\"lowtide.reason\":" + Quoted(reason) + ",\"lowtide.tree\":" + Quoted(tree) + ",\"lowtide.crc32c\":\"";
  const size_t table = header.size();
  header += mark + "\"}" + entries;
  header.resize((8 + header.size() + kAlignment - 1) / kAlignment * kAlignment - 8, ' ');
  const size_t start = 8 + header.size();
  bytes_ = start + at + sizeof(checkpoint::Seal);
  Reserve(bytes_);
  for (size_t place = 0; place < order.size(); ++place) {
    const Source& source = sources[std::get<3>(order[place])];
    const uint32_t crc = CopyCrc32c(static_cast<char*>(memory_) + start + std::get<0>(order[place]), source.data, source.bytes);
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", crc);
    std::memcpy(header.data() + table + 8 * place, digits, 8);
  }
  Seal(step, header);
}

inline void Image::Seal(uint64_t step, const std::string& header) {
  auto* base = static_cast<char*>(memory_);
  const uint64_t length = header.size();
  std::memcpy(base, &length, 8);
  std::memcpy(base + 8, header.data(), header.size());
  checkpoint::Seal seal{};
  std::memcpy(seal.magic, kSealMagic, sizeof kSealMagic);
  seal.version = 1;
  seal.header_crc = Crc32c(0, base, 8 + header.size());
  seal.file_bytes = bytes_;
  seal.step = step;
  std::random_device random;
  for (size_t i = 0; i < sizeof seal.nonce; i += 4) {
    const uint32_t word = random();
    std::memcpy(seal.nonce + i, &word, 4);
  }
  seal.crc = Crc32c(0, &seal, 60);
  std::memcpy(base + bytes_ - sizeof seal, &seal, sizeof seal);
}

inline FileReader::FileReader(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) Fail(std::string("cannot be opened: ") + std::strerror(errno));
  try {
    struct stat info {};
    if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) Fail("is not a regular file");
    header_.file_bytes = static_cast<uint64_t>(info.st_size);
    ReadSeal();
    ReadHeader();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

inline void FileReader::Bytes(uint64_t offset, void* to, uint64_t count) const {
  auto* out = static_cast<char*>(to);
  while (count) {
    const ssize_t got = ::pread(fd_, out, std::min<uint64_t>(count, 1u << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) Fail("cannot be read to its end");
    out += got;
    offset += static_cast<uint64_t>(got);
    count -= static_cast<uint64_t>(got);
  }
}

// The seal first, then the header that it covers: nothing that is damaged is even parsed.
inline void FileReader::ReadSeal() {
  checkpoint::Seal& seal = header_.seal;
  if (header_.file_bytes < 8 + sizeof seal) Fail("is too short");
  Bytes(header_.file_bytes - sizeof seal, &seal, sizeof seal);
  if (std::memcmp(seal.magic, kSealMagic, sizeof kSealMagic) != 0 || Crc32c(0, &seal, 60) != seal.crc) Fail("its seal is missing or damaged");
  if (seal.version != 1) Fail("is of a newer format");
  if (seal.file_bytes != header_.file_bytes) Fail("was written with another size");
}

inline void FileReader::ReadHeader() {
  uint64_t length = 0;
  Bytes(0, &length, 8);
  if (length > kMaxHeaderBytes || length > header_.file_bytes - 8 - sizeof(checkpoint::Seal)) Fail("claims a header that it has no room for");
  std::string whole(8 + length, '\0');
  Bytes(0, whole.data(), whole.size());
  if (Crc32c(0, whole.data(), whole.size()) != header_.seal.header_crc) Fail("the header's checksum differs");
  header_.json = whole.substr(8);
  header_.data_start = 8 + length;
  try {
    const Json json = JsonReader(header_.json).Read();
    if (json.kind != Json::Kind::kObject) Fail("its header is no object");
    for (size_t i = 0; i < json.names.size(); ++i) {
      const std::string& name = json.names[i];
      const Json& entry = json.items[i];
      if (name != "__metadata__") {
        header_.tensors.push_back(ReadTensor(name, entry));
        continue;
      }
      for (size_t key = 0; key < entry.names.size(); ++key) header_.metadata[entry.names[key]] = entry.items[key].text;
    }
    tree_ = JsonReader(header_.metadata["lowtide.tree"]).Read();
  } catch (const std::runtime_error& error) {
    Fail(error.what());
  }
  auto& tensors = header_.tensors;
  std::sort(tensors.begin(), tensors.end(),
            [](const Tensor& a, const Tensor& b) { return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name); });
  uint64_t at = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.begin != at) Fail("tensor " + tensor.name + " does not follow the one before it");
    at = tensor.end;
  }
  if (tensors.empty() || tensors.back().name != kSealName || at != header_.file_bytes - header_.data_start) Fail("its parts do not add up");
  tensors.pop_back();
  const std::string& crcs = header_.metadata["lowtide.crc32c"];
  if (crcs.size() != 8 * tensors.size()) Fail("the checksums are missing");
  for (size_t i = 0; i < tensors.size(); ++i) {
    char* end = nullptr;
    const std::string digits = crcs.substr(8 * i, 8);
    tensors[i].crc = static_cast<uint32_t>(std::strtoul(digits.c_str(), &end, 16));
    if (*end != 0) Fail("the checksums are not hexadecimal");
  }
}

inline Tensor FileReader::ReadTensor(const std::string& name, const Json& entry) const {
  const Json *dtype = entry.Find("dtype"), *shape = entry.Find("shape"), *offsets = entry.Find("data_offsets");
  if (!dtype || !shape || !offsets || offsets->items.size() != 2) Fail("the entry of tensor " + name + " is malformed");
  Tensor tensor;
  tensor.name = name;
  tensor.dtype = dtype->text;
  for (const Json& size : shape->items) {
    if (size.kind != Json::Kind::kNumber) Fail("the shape of tensor " + name + " is malformed");
    tensor.shape.push_back(size.number);
  }
  if (offsets->items[0].kind != Json::Kind::kNumber || offsets->items[1].kind != Json::Kind::kNumber) Fail("the offsets of tensor " + name + " are malformed");
  tensor.begin = offsets->items[0].number;
  tensor.end = offsets->items[1].number;
  if (tensor.end < tensor.begin || tensor.end > header_.file_bytes) Fail("tensor " + name + " lies outside the file");
  return tensor;
}

inline void FileReader::Read(const Tensor& tensor, void* to) const {
  Bytes(header_.data_start + tensor.begin, to, tensor.end - tensor.begin);
  if (Crc32c(0, to, tensor.end - tensor.begin) != tensor.crc) Fail("the checksum of tensor " + tensor.name + " differs: use an older checkpoint");
}

inline void FileReader::Verify() const {
  std::string buffer;
  for (const Tensor& tensor : header_.tensors) {
    buffer.resize(tensor.end - tensor.begin);
    Read(tensor, buffer.data());
  }
}

}  // namespace lowtide::checkpoint
