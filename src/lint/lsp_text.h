#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lowtide::lint {

// Positions as editors count them: lines from 0, characters in UTF-16 code units. Bytes that are no UTF-8
// count one.
struct LspPosition {
  uint32_t line = 0, character = 0;
};

class LspText {
 public:
  explicit LspText(std::string text);

  const std::string& text() const { return text_; }
  LspPosition At(uint32_t byte) const;
  uint32_t ByteOf(LspPosition position) const;  // clamped to the line, then to the text
  void Replace(LspPosition from, LspPosition to, std::string_view by);

 private:
  std::string text_;
  std::vector<uint32_t> starts_;
};

// "file:///a%20b.py" -> "/a b.py"; empty for other schemes. And back.
std::string PathOfUri(const std::string& uri);
std::string UriOfPath(const std::string& path);

}  // namespace lowtide::lint
