#include "report/columns.h"

#include <algorithm>

#include "base/json.h"

namespace lowtide::report {
namespace {

struct Range {
  char32_t first, last;
};
constexpr Range kWide[] = {{0x1100, 0x115F},   {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
                           {0xFE30, 0xFE6F},   {0xFF01, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1FAFF},
                           {0x20000, 0x3FFFD}};
constexpr Range kNone[] = {{0x0300, 0x036F}, {0x200B, 0x200F}, {0x202A, 0x202E}, {0x2066, 0x2069}, {0xFE00, 0xFE0F}};

template <size_t N>
bool In(const Range (&ranges)[N], char32_t code) {
  return std::any_of(ranges, ranges + N, [&](const Range& range) { return code >= range.first && code <= range.last; });
}

// One character of a text: its bytes, or "?" for what must not reach a terminal.
struct Character {
  std::string_view bytes;
  size_t length = 1;  // in the text
  int columns = 1;
};

Character At(std::string_view text, size_t at) {
  size_t length = Utf8Length(text, at);
  auto first = static_cast<unsigned char>(text[at]);
  if (length <= 1) {
    bool printable = length == 1 && first >= 0x20 && first != 0x7f;
    return {printable ? text.substr(at, 1) : "?", 1, 1};
  }
  char32_t code = first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3Fu);
  if (code < 0xA0) return {"?", length, 1};  // C1 controls
  return {text.substr(at, length), length, In(kNone, code) ? 0 : In(kWide, code) ? 2 : 1};
}

// Appends what fits; returns the columns taken and sets `used` to the bytes of `text` that fitted.
int Fit(std::string_view text, int columns, std::string& out, size_t* used = nullptr) {
  int taken = 0;
  size_t at = 0;
  while (at < text.size()) {
    Character character = At(text, at);
    if (taken + character.columns > columns) break;
    out += character.bytes;
    taken += character.columns;
    at += character.length;
  }
  if (used) *used = at;
  return taken;
}

}  // namespace

int DisplayWidth(std::string_view text) {
  int columns = 0;
  for (size_t at = 0; at < text.size();) {
    Character character = At(text, at);
    columns += character.columns;
    at += character.length;
  }
  return columns;
}

std::string CutTo(std::string_view text, int columns) {
  std::string out;
  Fit(text, columns, out);
  return out;
}

std::vector<std::string> WrapTo(std::string_view text, int columns) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    std::string line;
    size_t used = 0;
    Fit(text, std::max(columns, 2), line, &used);
    size_t space = used < text.size() && text[used] != ' ' ? text.substr(0, used).rfind(' ') : std::string_view::npos;
    if (space != std::string_view::npos && space > used / 2) {
      line.clear();
      Fit(text.substr(0, space), columns, line);
      used = space;
    }
    lines.push_back(line);
    text.remove_prefix(used);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return lines;
}

std::string FitLeft(std::string_view text, int columns) {
  std::string out;
  int taken = Fit(text, columns, out);
  return out.append(static_cast<size_t>(std::max(0, columns - taken)), ' ');
}

std::string FitRight(std::string_view text, int columns) {
  std::string out;
  int taken = Fit(text, columns, out);
  return std::string(static_cast<size_t>(std::max(0, columns - taken)), ' ') + out;
}

}  // namespace lowtide::report
