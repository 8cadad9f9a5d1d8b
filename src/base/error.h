#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace lowtide {

// The one exception of the offline half. Thrown by readers and verbs, caught at two doors: cli's main and the
// Python binding. Code that runs inside the user's process never throws it.
class Error : public std::runtime_error {
 public:
  // `message` says what is wrong, `remedy` what to do about it; `file` and `offset` (bytes from the start) say where.
  explicit Error(std::string message, std::string remedy = {}, std::string file = {},
                 std::optional<uint64_t> offset = std::nullopt);

  const std::string& message() const { return message_; }
  const std::string& remedy() const { return remedy_; }
  const std::string& file() const { return file_; }
  std::optional<uint64_t> offset() const { return offset_; }

  // The same error, told to belong to `file` unless it names one already.
  Error In(const std::string& file) const;

 private:
  std::string message_, remedy_, file_;
  std::optional<uint64_t> offset_;
};

}  // namespace lowtide
