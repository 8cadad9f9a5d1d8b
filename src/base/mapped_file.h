#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lowtide {

// A file mapped read-only. Throws Error (with the file's name and a remedy) when it cannot be opened or mapped;
// an empty file is an empty span. The file must not be truncated by others while mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// The whole of `path` ("-" is standard input), read into memory; throws Error.
std::string ReadFile(const std::string& path);

// Replaces `path` in one step: temporary file beside it, then rename. Throws Error; on failure the old file stays.
void WriteFileAtomically(const std::string& path, std::string_view content);

}  // namespace lowtide
