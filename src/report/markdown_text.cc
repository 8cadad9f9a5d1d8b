#include <algorithm>

#include "report/markdown.h"

namespace lowtide::report {
namespace {

using Kind = MarkdownBlock::Kind;

struct Word {
  std::string styled;
  size_t columns = 0;
  bool glued = false;  // no space before it
};

size_t Columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

std::string Style(MarkdownSpan::Kind kind, std::string_view text, const Terminal& terminal) {
  if (kind == MarkdownSpan::Kind::kBold) return terminal.Bold(text);
  if (kind == MarkdownSpan::Kind::kCode) return terminal.Cyan(text);
  return std::string(text);
}

// Words with their styles; code and bold text may be broken at their spaces too.
std::vector<Word> Words(std::string_view text, const Terminal& terminal) {
  std::vector<Word> words;
  bool glued = false;
  for (const MarkdownSpan& span : ParseSpans(text)) {
    std::string body = span.text;
    if (span.kind == MarkdownSpan::Kind::kCode && !terminal.color) body = "`" + body + "`";
    if (span.kind == MarkdownSpan::Kind::kLink && !span.target.empty()) body += " (" + span.target + ")";
    size_t at = 0;
    while (at < body.size()) {
      if (body[at] == ' ') {
        glued = false;
        ++at;
        continue;
      }
      size_t end = std::min(body.find(' ', at), body.size());
      std::string_view word = std::string_view(body).substr(at, end - at);
      words.push_back({Style(span.kind, word, terminal), Columns(word), glued});
      glued = true;
      at = end;
    }
  }
  return words;
}

std::string Wrap(std::string_view text, const Terminal& terminal, const std::string& first, const std::string& rest) {
  size_t width = static_cast<size_t>(std::clamp(terminal.width, 20, 100));
  std::vector<Word> words = Words(text, terminal);
  std::string out = first;
  size_t column = first.size();
  bool fresh = true;  // nothing on this line yet
  for (size_t i = 0; i < words.size();) {
    size_t end = i + 1, columns = words[i].columns;
    while (end < words.size() && words[end].glued) columns += words[end++].columns;
    if (!fresh && column + 1 + columns > width) {
      out += "\n" + rest;
      column = rest.size();
      fresh = true;
    }
    if (!fresh) out += ' ', ++column;
    for (; i < end; ++i) out += words[i].styled;
    column += columns;
    fresh = false;
  }
  return out + "\n";
}

std::string Code(const std::string& text, const Terminal& terminal) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    out += line.empty() ? "\n" : "    " + terminal.Dim(line) + "\n";
    at = end + 1;
  }
  return out;
}

}  // namespace

std::string MarkdownToTerminal(std::string_view markdown, const Terminal& terminal) {
  std::string out;
  Kind before = Kind::kHeading;
  for (const MarkdownBlock& block : ParseMarkdown(markdown)) {
    bool list_goes_on = block.kind == Kind::kItem && before == Kind::kItem;
    if (!out.empty() && !list_goes_on && before != Kind::kHeading) out += "\n";
    if (!out.empty() && before == Kind::kHeading && block.kind == Kind::kHeading) out += "\n";
    before = block.kind;
    if (block.kind == Kind::kHeading) {
      out += terminal.Bold(block.text) + "\n";
    } else if (block.kind == Kind::kCode) {
      out += Code(block.text, terminal);
    } else {
      std::string indent(static_cast<size_t>(2 + 2 * block.level), ' ');
      std::string marker = block.kind == Kind::kItem ? block.marker + " " : "";
      out += Wrap(block.text, terminal, indent + marker, indent + std::string(marker.size(), ' '));
    }
  }
  return out;
}

}  // namespace lowtide::report
