#include "checkpoint/reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "lowtide/crc32c.h"
#include "base/error.h"

namespace lowtide::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr char kRemedy[] = "it is damaged or incomplete: use an older checkpoint (`lowtide checkpoint list` shows them)";

[[noreturn]] void Damaged(const std::string& what, uint64_t offset) { throw Error(what, kRemedy, {}, offset); }

uint64_t Unsigned(const Json& value, const char* what) {
  if (!value.is_number_unsigned()) Damaged(fmt::format("{} is not a whole number", what), 8);
  return value.get<uint64_t>();
}

Tensor ParseTensor(const std::string& name, const Json& value) {
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets") ||
      !value["dtype"].is_string() || !value["shape"].is_array() || !value["data_offsets"].is_array() ||
      value["data_offsets"].size() != 2 || value["shape"].size() > 64) {
    Damaged(fmt::format("the entry of tensor {} is malformed", name), 8);
  }
  Tensor tensor;
  tensor.name = name;
  tensor.dtype = value["dtype"].get<std::string>();
  tensor.begin = Unsigned(value["data_offsets"][0], "an offset");
  tensor.end = Unsigned(value["data_offsets"][1], "an offset");
  uint64_t bytes = ElementBytes(tensor.dtype);
  if (!bytes) Damaged(fmt::format("tensor {} has the unknown type {}", name, tensor.dtype), 8);
  for (const Json& size : value["shape"]) {
    tensor.shape.push_back(Unsigned(size, "a dimension"));
    if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes)) Damaged(fmt::format("tensor {} is too large", name), 8);
  }
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
    Damaged(fmt::format("tensor {} has {} bytes of data for a shape of {} bytes", name, tensor.end - tensor.begin, bytes), 8);
  }
  return tensor;
}

Json ParseJson(const std::string& text) {
  // Duplicate names would make two readers see two files: refuse them. Depth is bounded for the same reason that
  // lengths are: nothing that the file says may cost more than its own size.
  std::vector<std::set<std::string>> open;
  bool duplicate = false, deep = false;
  Json json = Json::parse(
      text,
      [&](int depth, Json::parse_event_t event, Json& value) {
        deep |= depth > 16;
        if (event == Json::parse_event_t::object_start) open.emplace_back();
        if (event == Json::parse_event_t::object_end && !open.empty()) open.pop_back();
        if (event == Json::parse_event_t::key && !open.empty()) duplicate |= !open.back().insert(value.get<std::string>()).second;
        return depth <= 16;
      },
      false);
  if (deep) Damaged("the header is nested too deeply", 8);
  if (duplicate) Damaged("a name stands twice in the header", 8);
  if (json.is_discarded() || !json.is_object()) Damaged("the header is not JSON", 8);
  return json;
}

void CheckLayout(Header& header) {
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const Tensor& a, const Tensor& b) { return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name); });
  uint64_t at = 0;
  for (const Tensor& tensor : header.tensors) {
    if (tensor.begin != at) Damaged(fmt::format("tensor {} does not follow the one before it", tensor.name), 8);
    at = tensor.end;
  }
  if (at != header.file_bytes - header.data_start) {
    Damaged(fmt::format("the file has {} bytes of data, its header tells of {}", header.file_bytes - header.data_start, at),
            header.data_start);
  }
}

void TakeSeal(Header& header, const ReadAt& read) {
  auto found = std::find_if(header.tensors.begin(), header.tensors.end(), [](const Tensor& t) { return t.name == kSealName; });
  if (found == header.tensors.end()) {
    throw Error("has no seal: it was not written by lowtide, so that damage could not be noticed",
                "load it as a plain safetensors file, or import it (lowtide.import_checkpoint)");
  }
  if (found->end - found->begin != sizeof(Seal) || found->end != header.file_bytes - header.data_start) {
    Damaged("the seal is not the last 64 bytes", header.data_start + found->begin);
  }
  const uint64_t offset = header.file_bytes - sizeof(Seal);
  if (!read(offset, &header.seal, sizeof(Seal))) Damaged("the seal cannot be read", offset);
  const Seal& seal = header.seal;
  if (std::memcmp(seal.magic, kSealMagic, sizeof kSealMagic) != 0 || Crc32c(0, &seal, 60) != seal.crc) Damaged("the seal is damaged", offset);
  if (seal.version != 1) throw Error(fmt::format("has format {}, this lowtide knows 1", seal.version), "use a newer lowtide");
  if (seal.file_bytes != header.file_bytes) {
    Damaged(fmt::format("has {} bytes and was written with {}", header.file_bytes, seal.file_bytes), offset);
  }
  header.tensors.erase(found);
}

void TakeChecksums(Header& header) {
  auto found = header.metadata.find("lowtide.crc32c");
  if (found == header.metadata.end() || found->second.size() != 8 * header.tensors.size()) Damaged("the checksums are missing", 8);
  const char* at = found->second.data();
  for (Tensor& tensor : header.tensors) {
    auto [end, error] = std::from_chars(at, at + 8, tensor.crc, 16);
    if (error != std::errc() || end != at + 8) Damaged("the checksums are not hexadecimal", 8);
    at += 8;
  }
}

struct File {
  int fd = -1;
  uint64_t bytes = 0;
  explicit File(const std::string& path) {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) throw Error(fmt::format("cannot open: {}", std::strerror(errno)), errno == ENOENT ? "check the path" : "", path);
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      ::close(fd);
      throw Error("is not a regular file", "name a checkpoint file, or the folder that holds them", path);
    }
    bytes = static_cast<uint64_t>(info.st_size);
  }
  File(const File&) = delete;
  ~File() { ::close(fd); }
  bool Read(uint64_t offset, void* to, uint64_t count) const {
    auto* out = static_cast<char*>(to);
    while (count) {
      const ssize_t got = ::pread(fd, out, std::min<uint64_t>(count, 1u << 30), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      out += got;
      offset += static_cast<uint64_t>(got);
      count -= static_cast<uint64_t>(got);
    }
    return true;
  }
};

Header HeaderOf(const File& file) {
  return ParseHeader(file.bytes, [&](uint64_t offset, void* to, uint64_t bytes) { return file.Read(offset, to, bytes); });
}

}  // namespace

uint64_t ElementBytes(const std::string& dtype) {
  static const std::map<std::string, uint64_t> kBytes = {
      {"F64", 8}, {"I64", 8}, {"U64", 8}, {"C64", 8}, {"F32", 4}, {"I32", 4}, {"U32", 4},     {"F16", 2},
      {"BF16", 2}, {"I16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 0 : found->second;
}

Header ParseHeader(uint64_t file_bytes, const ReadAt& read) {
  Header header;
  header.file_bytes = file_bytes;
  uint64_t length = 0;
  if (file_bytes < 8 || !read(0, &length, 8)) Damaged(fmt::format("has only {} bytes", file_bytes), 0);
  if (length > kMaxHeaderBytes || length > file_bytes - 8) {
    Damaged(fmt::format("claims a header of {} bytes in a file of {}", length, file_bytes), 0);
  }
  std::string whole(8 + length, '\0');
  std::memcpy(whole.data(), &length, 8);
  if (!read(8, whole.data() + 8, length)) Damaged("the header cannot be read", 8);
  header.data_start = 8 + length;
  header.json = whole.substr(8);
  const Json json = ParseJson(header.json);
  for (const auto& [name, value] : json.items()) {
    if (name != "__metadata__") {
      header.tensors.push_back(ParseTensor(name, value));
      continue;
    }
    if (!value.is_object()) Damaged("the metadata is malformed", 8);
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) Damaged("the metadata is malformed", 8);
      header.metadata[key] = text.get<std::string>();
    }
  }
  CheckLayout(header);
  TakeSeal(header, read);
  if (Crc32c(0, whole.data(), whole.size()) != header.seal.header_crc) Damaged("the header's checksum differs", 8);
  TakeChecksums(header);
  return header;
}

Header ReadHeader(const std::string& path) {
  const File file(path);
  try {
    return HeaderOf(file);
  } catch (const Error& error) {
    throw error.In(path);
  }
}

Header VerifyFile(const std::string& path) {
  const File file(path);
  try {
    Header header = HeaderOf(file);
    std::string buffer(4u << 20, '\0');
    for (const Tensor& tensor : header.tensors) {
      uint32_t crc = 0;
      for (uint64_t at = tensor.begin; at < tensor.end;) {
        const uint64_t piece = std::min<uint64_t>(buffer.size(), tensor.end - at);
        if (!file.Read(header.data_start + at, buffer.data(), piece)) Damaged("ends too early", header.data_start + at);
        crc = Crc32c(crc, buffer.data(), piece);
        at += piece;
      }
      if (crc != tensor.crc) Damaged(fmt::format("the checksum of tensor {} differs", tensor.name), header.data_start + tensor.begin);
    }
    return header;
  } catch (const Error& error) {
    throw error.In(path);
  }
}

}  // namespace lowtide::checkpoint
