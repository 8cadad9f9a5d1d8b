#include "report/markdown.h"

#include <fmt/core.h>

#include <algorithm>

#include "report/html_page.h"

namespace lowtide::report {
namespace {

using Kind = MarkdownBlock::Kind;

std::string_view Trim(std::string_view text) {
  size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// The marker of a list item at the start of `text` ("-", "*", "12."), or "".
std::string_view ItemMarker(std::string_view text) {
  if (text.starts_with("- ") || text.starts_with("* ")) return text.substr(0, 1);
  size_t digits = 0;
  while (digits < text.size() && digits < 3 && text[digits] >= '0' && text[digits] <= '9') ++digits;
  bool numbered = digits > 0 && text.substr(digits).starts_with(". ");
  return numbered ? text.substr(0, digits + 1) : std::string_view{};
}

class Parser {
 public:
  std::vector<MarkdownBlock> Parse(std::string_view markdown) {
    while (!markdown.empty()) {
      size_t end = markdown.find('\n');
      Line(markdown.substr(0, end));
      markdown = end == std::string_view::npos ? std::string_view{} : markdown.substr(end + 1);
    }
    return std::move(blocks_);
  }

 private:
  void Line(std::string_view line) {
    std::string_view text = Trim(line);
    if (text.starts_with("```")) {
      in_code_ = !in_code_;
      open_ = false;
      if (in_code_) blocks_.push_back({Kind::kCode, 0, "", ""});
    } else if (in_code_) {
      blocks_.back().text.append(line).append("\n");
    } else if (text.empty()) {
      open_ = false;
    } else if (size_t hashes = text.find_first_not_of('#'); hashes > 0 && hashes < 7 && text.substr(hashes).starts_with(" ")) {
      open_ = false;
      blocks_.push_back({Kind::kHeading, static_cast<int>(hashes), "", std::string(Trim(text.substr(hashes)))});
    } else if (std::string_view marker = ItemMarker(text); !marker.empty()) {
      auto depth = static_cast<int>((line.size() - Trim(line).size()) / 2);
      blocks_.push_back({Kind::kItem, std::min(depth, 4), std::string(marker), std::string(Trim(text.substr(marker.size())))});
      open_ = true;
    } else if (open_) {
      blocks_.back().text.append(" ").append(text);
    } else {
      blocks_.push_back({Kind::kParagraph, 0, "", std::string(text)});
      open_ = true;
    }
  }

  std::vector<MarkdownBlock> blocks_;
  bool in_code_ = false;
  bool open_ = false;  // the last block takes further lines
};

// The span that starts at `text`, if one does; sets `length` to what it covers.
bool SpanAt(std::string_view text, MarkdownSpan& span, size_t& length) {
  auto between = [&](std::string_view mark, MarkdownSpan::Kind kind) {
    size_t end = text.find(mark, mark.size());
    if (!text.starts_with(mark) || end == std::string_view::npos || end == mark.size()) return false;
    span = {kind, std::string(text.substr(mark.size(), end - mark.size())), ""};
    length = end + mark.size();
    return true;
  };
  if (between("``", MarkdownSpan::Kind::kCode) || between("`", MarkdownSpan::Kind::kCode)) return true;
  if (between("**", MarkdownSpan::Kind::kBold)) return true;
  if (!text.starts_with("[")) return false;
  size_t middle = text.find("](");
  size_t end = middle == std::string_view::npos ? middle : text.find(')', middle);
  if (end == std::string_view::npos) return false;
  span = {MarkdownSpan::Kind::kLink, std::string(text.substr(1, middle - 1)),
          std::string(text.substr(middle + 2, end - middle - 2))};
  length = end + 1;
  return true;
}

}  // namespace

std::vector<MarkdownBlock> ParseMarkdown(std::string_view markdown) { return Parser().Parse(markdown); }

std::vector<MarkdownSpan> ParseSpans(std::string_view text) {
  std::vector<MarkdownSpan> spans;
  std::string plain;
  auto flush = [&] {
    if (!plain.empty()) spans.push_back({MarkdownSpan::Kind::kText, std::move(plain), ""});
    plain.clear();
  };
  while (!text.empty()) {
    MarkdownSpan span;
    size_t length = 0;
    if (SpanAt(text, span, length)) {
      flush();
      spans.push_back(std::move(span));
      text.remove_prefix(length);
    } else {
      plain += text[0];
      text.remove_prefix(1);
    }
  }
  flush();
  return spans;
}

std::string SpansToHtml(std::string_view text) {
  std::string out;
  for (const MarkdownSpan& span : ParseSpans(text)) {
    std::string inner = EscapeHtml(span.text);
    bool web = span.target.starts_with("https://") || span.target.starts_with("http://");
    switch (span.kind) {
      case MarkdownSpan::Kind::kCode:
        out += "<code>" + inner + "</code>";
        break;
      case MarkdownSpan::Kind::kBold:
        out += "<strong>" + inner + "</strong>";
        break;
      case MarkdownSpan::Kind::kLink:
        out += web ? fmt::format("<a href=\"{}\" rel=\"noreferrer\">{}</a>", EscapeHtml(span.target), inner) : inner;
        break;
      case MarkdownSpan::Kind::kText:
        out += inner;
    }
  }
  return out;
}

std::string MarkdownToHtml(std::string_view markdown, int top) {
  std::string out;
  const char* list = nullptr;  // the tag of the open list
  auto close = [&] {
    if (list) out += fmt::format("</{}>\n", list);
    list = nullptr;
  };
  for (const MarkdownBlock& block : ParseMarkdown(markdown)) {
    if (block.kind == Kind::kItem) {
      const char* wanted = block.marker.size() == 1 ? "ul" : "ol";
      if (list && std::string_view(list) != wanted) close();
      if (!list) out += fmt::format("<{}>\n", list = wanted);
      out += "<li>" + SpansToHtml(block.text) + "</li>\n";
      continue;
    }
    close();
    int level = std::min(6, top + block.level - 1);
    if (block.kind == Kind::kHeading) {
      out += fmt::format("<h{0}>{1}</h{0}>\n", level, SpansToHtml(block.text));
    } else if (block.kind == Kind::kCode) {
      out += "<pre tabindex=\"0\"><code>" + EscapeHtml(block.text) + "</code></pre>\n";
    } else {
      out += "<p>" + SpansToHtml(block.text) + "</p>\n";
    }
  }
  close();
  return out;
}

}  // namespace lowtide::report
