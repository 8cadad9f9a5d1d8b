#include "lint/lsp_text.h"

#include <algorithm>
#include <cctype>

#include "lint/suppress_scan.h"

namespace lowtide::lint {
namespace {

struct Step {
  size_t bytes;
  uint32_t units;  // of UTF-16
};

Step StepAt(std::string_view text, size_t at) {
  unsigned char lead = static_cast<unsigned char>(text[at]);
  size_t length = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 1;
  for (size_t i = 1; i < length; ++i) {
    if (at + i >= text.size() || (text[at + i] & 0xC0) != 0x80) return {1, 1};
  }
  return {length, length == 4 ? 2u : 1u};
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

LspText::LspText(std::string text) : text_(std::move(text)), starts_(LineStarts(text_)) {}

LspPosition LspText::At(uint32_t byte) const {
  byte = std::min<uint32_t>(byte, static_cast<uint32_t>(text_.size()));
  uint32_t line =
      static_cast<uint32_t>(std::upper_bound(starts_.begin(), starts_.end(), byte) - starts_.begin() - 1);
  uint32_t units = 0;
  for (size_t at = starts_[line]; at < byte;) {
    Step step = StepAt(text_, at);
    at += step.bytes;
    units += step.units;
  }
  return {line, units};
}

uint32_t LspText::ByteOf(LspPosition position) const {
  if (position.line >= starts_.size()) return static_cast<uint32_t>(text_.size());
  size_t at = starts_[position.line];
  size_t end = std::min(text_.find_first_of("\r\n", at), text_.size());
  for (uint32_t units = 0; at < end;) {
    Step step = StepAt(text_, at);
    if (units + step.units > position.character) break;
    units += step.units;
    at += step.bytes;
  }
  return static_cast<uint32_t>(std::min(at, end));
}

void LspText::Replace(LspPosition from, LspPosition to, std::string_view by) {
  uint32_t start = ByteOf(from), end = std::max(start, ByteOf(to));
  text_.replace(start, end - start, by);
  starts_ = LineStarts(text_);
}

std::string PathOfUri(const std::string& uri) {
  if (!uri.starts_with("file://")) return "";
  size_t slash = uri.find('/', 7);
  std::string path;
  for (size_t at = slash; at < uri.size(); ++at) {
    int high = uri[at] == '%' && at + 2 < uri.size() ? HexValue(uri[at + 1]) : -1;
    int low = high >= 0 ? HexValue(uri[at + 2]) : -1;
    if (low >= 0) {
      path += static_cast<char>(high * 16 + low);
      at += 2;
    } else {
      path += uri[at];
    }
  }
  return path;
}

std::string UriOfPath(const std::string& path) {
  static const char* kHex = "0123456789ABCDEF";
  std::string uri = "file://";
  for (unsigned char c : path) {
    if (std::isalnum(c) || std::string_view("/-._~").find(static_cast<char>(c)) != std::string_view::npos) {
      uri += static_cast<char>(c);
    } else {
      ((uri += '%') += kHex[c >> 4]) += kHex[c & 15];
    }
  }
  return uri;
}

}  // namespace lowtide::lint
