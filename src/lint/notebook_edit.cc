// Edits of a notebook's source, carried back into its JSON.
#include <algorithm>

#include "base/json.h"
#include "lint/notebook.h"
#include "lint/suppress_scan.h"

namespace lowtide::lint {
namespace {

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<uint32_t> starts = LineStarts(text);
  std::vector<std::string> lines;
  for (size_t i = 0; i < starts.size(); ++i) {
    size_t end = i + 1 < starts.size() ? starts[i + 1] : text.size();
    if (end > starts[i]) lines.push_back(text.substr(starts[i], end - starts[i]));
  }
  return lines;
}

// What stands between two strings of the list: taken from the list itself, or from the indentation of its
// only string.
std::string Separator(std::string_view json, size_t first_end, size_t second_start, size_t first_start,
                      bool has_second) {
  if (has_second) return std::string(json.substr(first_end, second_start - first_end));
  size_t line = json.rfind('\n', first_start);
  std::string_view before = line == std::string_view::npos ? "" : json.substr(line, first_start - line);
  bool own_line = !before.empty() && before.find_first_not_of(" \t\r\n") == std::string_view::npos;
  return own_line ? "," + std::string(before) : ", ";
}

}  // namespace

std::optional<std::string> Notebook::Apply(std::string_view json, const std::vector<Edit>& edits) const {
  std::string out(json);
  std::vector<uint32_t> starts = LineStarts(source_);
  auto line_of = [&](uint32_t at) {
    return std::upper_bound(starts.begin(), starts.end(), at) - starts.begin() - 1;
  };
  for (auto cell = cells_.rbegin(); cell != cells_.rend();
       ++cell) {  // from the end: offsets before stay right
    std::string text;
    for (const Line& piece : cell->pieces) text += piece.text;
    bool touched = false;
    for (auto edit = edits.rbegin(); edit != edits.rend(); ++edit) {
      if (edit->end < cell->start || edit->start > cell->end) continue;
      if (edit->start < cell->start || edit->end > cell->end) return std::nullopt;
      for (auto line = line_of(edit->start); line <= line_of(edit->end); ++line) {
        bool inside = edit->end > starts[line] && (edit->start != edit->end || edit->start > starts[line]);
        if (inside && line < static_cast<long>(blanked_.size()) && blanked_[line]) return std::nullopt;
      }
      text.replace(edit->start - cell->start, edit->end - edit->start, edit->replacement);
      touched = true;
    }
    if (!touched || cell->pieces.empty()) continue;
    const auto& pieces = cell->pieces;
    bool is_list = json.substr(0, pieces[0].raw_start).find_last_of("[:") != std::string_view::npos &&
                   json[json.substr(0, pieces[0].raw_start).find_last_not_of(" \t\r\n")] == '[';
    std::vector<std::string> lines = is_list ? SplitLines(text) : std::vector<std::string>{text};
    if (lines.empty()) lines.emplace_back();
    size_t same_head = 0, same_tail = 0, most = std::min(lines.size(), pieces.size());
    while (same_head < most && lines[same_head] == pieces[same_head].text) ++same_head;
    while (same_tail < most - same_head &&
           lines[lines.size() - 1 - same_tail] == pieces[pieces.size() - 1 - same_tail].text)
      ++same_tail;
    bool several = pieces.size() > 1;
    std::string between =
        Separator(json, pieces[0].raw_end, several ? pieces[1].raw_start : 0, pieces[0].raw_start, several);
    std::string joined;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (i > 0) joined += between;
      size_t from_end = lines.size() - i;
      const Line* old = i < same_head           ? &pieces[i]
                        : from_end <= same_tail ? &pieces[pieces.size() - from_end]
                                                : nullptr;
      joined +=
          old ? std::string(json.substr(old->raw_start, old->raw_end - old->raw_start)) : JsonQuote(lines[i]);
    }
    out.replace(pieces.front().raw_start, pieces.back().raw_end - pieces.front().raw_start, joined);
  }
  return out;
}

}  // namespace lowtide::lint
