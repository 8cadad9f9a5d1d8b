#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/terminal.h"

namespace lowtide::report {

// The part of Markdown that the pages of docs/findings use: headings, paragraphs, fenced code, lists, and in a line
// `code`, **bold** and [text](target). Anything else is text.
struct MarkdownBlock {
  enum class Kind { kHeading, kParagraph, kCode, kItem };
  Kind kind = Kind::kParagraph;
  int level = 0;        // of a heading; of an item: how deep it stands
  std::string marker;   // of an item: "-" or "1."
  std::string text;     // lines of a paragraph joined by spaces; lines of code as they are
};

std::vector<MarkdownBlock> ParseMarkdown(std::string_view markdown);

struct MarkdownSpan {
  enum class Kind { kText, kCode, kBold, kLink };
  Kind kind = Kind::kText;
  std::string text;
  std::string target;  // of a link
};

std::vector<MarkdownSpan> ParseSpans(std::string_view text);

// For a terminal: headings bold, code indented and dim, text wrapped at the terminal's width (at most 100 columns).
std::string MarkdownToTerminal(std::string_view markdown, const Terminal& terminal);

// Escaped HTML. Level-1 headings become `top` ("h3"), deeper ones follow; links only when http(s), else their text.
std::string MarkdownToHtml(std::string_view markdown, int top);

// The spans of one line as escaped HTML.
std::string SpansToHtml(std::string_view text);

}  // namespace lowtide::report
