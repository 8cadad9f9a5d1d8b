#pragma once

#include <optional>
#include <string>

namespace lowtide::lint {

// Messages behind "Content-Length: N" headers.
class LspStream {
 public:
  LspStream(int in, int out) : in_(in), out_(out) {}

  enum class Event { kMessage, kBroken, kEnd };
  // The next message, into `body`. kBroken: bytes that are no message were passed over.
  Event Read(std::string& body);
  // A whole message is at hand, or more input can be read without waiting.
  bool HasMore() const;
  // False when the other side has gone.
  bool Write(const std::string& body);

 private:
  bool Fill();  // reads some more; false at the end
  std::optional<size_t> HeaderLength(size_t header_end) const;

  static constexpr size_t kMostHeader = 8192, kMostBody = 64 << 20;
  int in_, out_;
  std::string buffer_;
};

}  // namespace lowtide::lint
