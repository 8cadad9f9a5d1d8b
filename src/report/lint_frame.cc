#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "report/lint_report.h"

namespace lowtide::report {
namespace {

constexpr size_t kTab = 4;

struct Cell {
  std::string text;  // what is printed for one code point
  size_t width = 1;
};

// East Asian wide ranges (Unicode 15, UAX #11) that occur in source code; combining marks take no column.
size_t WidthOf(uint32_t c) {
  if ((c >= 0x300 && c <= 0x36F) || c == 0x200D || (c >= 0xFE00 && c <= 0xFE0F)) return 0;
  bool wide = (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF && c != 0x303F) ||
              (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0xFE30 && c <= 0xFE6F) ||
              (c >= 0xFF00 && c <= 0xFF60) || (c >= 0x1F300 && c <= 0x1FAFF) ||
              (c >= 0x20000 && c <= 0x3FFFD);
  return wide ? 2 : 1;
}

// The number of bytes of the code point at `at`, 0 when it is no valid UTF-8; `value` is set.
size_t Decode(std::string_view text, size_t at, uint32_t& value) {
  auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  unsigned lead = byte(0);
  size_t length = lead < 0x80                   ? 1
                  : lead >= 0xC2 && lead < 0xE0 ? 2
                  : (lead & 0xF0) == 0xE0       ? 3
                  : lead >= 0xF0 && lead < 0xF5 ? 4
                                                : 0;
  if (length == 0) return 0;
  value = length == 1 ? lead : lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    value = value << 6 | (byte(i) & 0x3F);
  }
  return length;
}

std::vector<Cell> Cells(std::string_view line) {
  std::vector<Cell> cells;
  for (size_t at = 0; at < line.size();) {
    uint32_t value = 0;
    size_t length = Decode(line, at, value);
    if (value == '\t' && length == 1) {
      cells.push_back({std::string(kTab, ' '), kTab});
    } else if (length == 0 || value < 0x20 || (value >= 0x7F && value < 0xA0) ||
               (value >= 0x202A && value <= 0x202E) || (value >= 0x2066 && value <= 0x2069)) {
      cells.push_back({"\xEF\xBF\xBD", 1});  // broken bytes, control characters, changes of writing direction
    } else {
      cells.push_back({std::string(line.substr(at, length)), WidthOf(value)});
    }
    at += length ? length : 1;
  }
  return cells;
}

std::string_view LineOf(const std::string& text, uint32_t line) {
  size_t at = 0;
  for (uint32_t i = 1; i < line; ++i) {
    at = text.find_first_of("\r\n", at);
    if (at == std::string::npos) return {};
    at += text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n' ? 2 : 1;
  }
  std::string_view rest = std::string_view(text).substr(at);
  return rest.substr(0, rest.find_first_of("\r\n"));
}

// Where to cut so that the span is seen, and the columns of the piece.
struct Window {
  size_t first = 0, last = 0;  // cells
};

Window Around(const std::vector<Cell>& cells, size_t from, size_t columns) {
  auto width = [&](size_t a, size_t b) {
    size_t sum = 0;
    for (size_t i = a; i < b; ++i) sum += cells[i].width;
    return sum;
  };
  if (cells.size() < 4096 && width(0, cells.size()) <= columns) return {0, cells.size()};
  Window window;
  window.first = from > columns / 4 ? from - columns / 4 : 0;
  window.last = window.first;
  for (size_t used = 0; window.last < cells.size() && used + cells[window.last].width <= columns;
       ++window.last) {
    used += cells[window.last].width;
  }
  return window;
}

std::string Join(const std::vector<Cell>& cells, Window window) {
  std::string out = window.first ? "..." : "";
  for (size_t i = window.first; i < window.last; ++i) out += cells[i].text;
  if (window.last < cells.size()) out += "...";
  return out;
}

}  // namespace

std::string Printable(const std::string& text) {
  std::string out;
  for (const Cell& cell : Cells(text)) out += cell.text;
  return out;
}

std::string CodeFrame(const std::string& text, uint32_t line, uint32_t column, uint32_t end_column,
                      uint32_t shown_line, const Terminal& terminal) {
  size_t gutter = fmt::format("{}", shown_line).size();
  size_t columns = static_cast<size_t>(std::clamp(terminal.width, 40, 200)) - gutter - 9;
  std::string bar = terminal.unicode ? "\u2502" : "|";
  auto gutter_of = [&](const std::string& number) {
    return terminal.Dim(fmt::format("{:>{}} {}", number, gutter, bar));
  };
  std::string out = gutter_of("") + "\n";
  std::vector<Cell> before = line > 1 && shown_line > 1 ? Cells(LineOf(text, line - 1)) : std::vector<Cell>{};
  if (!before.empty()) {
    out +=
        gutter_of(fmt::format("{}", shown_line - 1)) + " " + Join(before, Around(before, 0, columns)) + "\n";
  }
  std::vector<Cell> cells = Cells(LineOf(text, line));
  size_t from = std::min<size_t>(column ? column - 1 : 0, cells.size());
  size_t to = end_column ? std::clamp<size_t>(end_column - 1, from, cells.size()) : cells.size();
  Window window = Around(cells, from, columns);
  out += gutter_of(fmt::format("{}", shown_line)) + " " + Join(cells, window) + "\n";
  size_t blanks = window.first ? 3 : 0, carets = 0;
  for (size_t i = window.first; i < std::min(from, window.last); ++i) blanks += cells[i].width;
  for (size_t i = from; i < std::min(to, window.last); ++i) carets += cells[i].width;
  out += gutter_of("") + " " + std::string(blanks, ' ') +
         terminal.Red(std::string(std::max<size_t>(carets, 1), '^')) + "\n";
  return out;
}

}  // namespace lowtide::report
