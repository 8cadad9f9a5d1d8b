#include "report/source.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace lowtide::report {
namespace {

constexpr uintmax_t kLargestFile = 16 << 20;
constexpr size_t kLongestLine = 160;

bool Readable(const std::string& file) {
  std::error_code error;
  return std::filesystem::is_regular_file(file, error) && std::filesystem::file_size(file, error) <= kLargestFile;
}

size_t Indentation(const std::string& text) { return std::min(text.find_first_not_of(" \t"), text.size()); }

// Not in the middle of a UTF-8 sequence.
void Cut(std::string& text, size_t size) {
  if (text.size() <= size) return;
  while (size > 0 && (text[size] & 0xC0) == 0x80) --size;
  text.resize(size);
}

}  // namespace

std::string SourceLine(const std::string& file, int line) {
  auto rows = SourceAround(file, line, 0);
  return rows.empty() ? "" : rows[0].text;
}

std::vector<SourceRow> SourceAround(const std::string& file, int line, int around) {
  std::vector<SourceRow> rows;
  if (line < 1 || !Readable(file)) return rows;
  std::ifstream in(file);
  std::string text;
  for (int at = 1; at <= line + around && std::getline(in, text); ++at) {
    if (at < line - around) continue;
    text.erase(text.find_last_not_of(" \t\r") + 1);
    rows.push_back({at, text});
  }
  bool found = !rows.empty() && rows.back().line >= line;
  if (!found) return {};
  size_t shared = std::string::npos;
  for (const SourceRow& row : rows) {
    if (!row.text.empty()) shared = std::min(shared, Indentation(row.text));
  }
  for (SourceRow& row : rows) {
    row.text.erase(0, std::min(shared, row.text.size()));
    Cut(row.text, kLongestLine);
  }
  return rows;
}

}  // namespace lowtide::report
