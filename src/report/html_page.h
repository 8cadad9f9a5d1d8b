#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/assets.h"

namespace lowtide::report {

// `text` for an HTML text or a quoted attribute: & < > " ' escaped, invalid UTF-8 and control characters replaced.
std::string EscapeHtml(std::string_view text);

// HTML written tag by tag; text and attribute values are escaped, so that no input can become markup.
//   html.Open("p", {{"class", "why"}}).Text(reason).Close();
class HtmlWriter {
 public:
  using Attributes = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // An attribute with an empty value is left out.
  HtmlWriter& Open(std::string_view tag, Attributes attributes = {});
  HtmlWriter& Close();
  HtmlWriter& Text(std::string_view text);
  // Open, Text, Close.
  HtmlWriter& Leaf(std::string_view tag, Attributes attributes, std::string_view text);
  // Must be finished HTML.
  HtmlWriter& Raw(std::string_view html);

  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
  std::vector<std::string> open_;
};

struct Page {
  std::string title;
  std::string lang = "en";  // "en", "zh"
  std::string body;         // HTML
  std::string data_json;    // what the script reads; any JSON
  const Asset* extra_style = nullptr;  // added to the report's style
  const Asset* script = nullptr;       // instead of the report's script
};

// One self-contained page: style and script inline, nothing loaded. A Content-Security-Policy admits exactly that style
// and that script by their hashes and forbids every connection (https://www.w3.org/TR/CSP3/).
std::string RenderPage(const Page& page);

}  // namespace lowtide::report
