#include "report/html_page.h"

#include <fmt/core.h>

#include "base/json.h"
#include "finding/version.h"
#include "report/assets.h"

namespace lowtide::report {
namespace {

constexpr const char* kIcon =
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M1 6q3.5-4 7 0t7 0"
    "M1 11q3.5-4 7 0t7 0' fill='none' stroke='%232f81f7' stroke-width='2'/%3E%3C/svg%3E";

// The source expression of CSP: 'sha256-<base64 of the hash>'.
std::string CspHash(std::string_view hex) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  static constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out = "'sha256-";
  unsigned bits = 0, held = 0;
  for (char c : hex) {
    bits = bits << 4 | static_cast<unsigned>(kDigits.find(c));
    held += 4;
    if (held >= 6) {
      held -= 6;
      out += kBase64[bits >> held & 63];
    }
  }
  if (held) out += kBase64[bits << (6 - held) & 63];
  while ((out.size() - 8) % 4) out += '=';
  return out + "'";
}

// JSON inside a script element must not end it nor open a comment (HTML, "Restrictions for contents of script elements").
std::string ForScript(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    auto c = static_cast<unsigned char>(text[i]);
    size_t length = Utf8Length(text, i);
    if (length == 0 || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      out += "\xEF\xBF\xBD";
      ++i;
      continue;
    }
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.append(text.substr(i, length));
    }
    i += length;
  }
  return out;
}

HtmlWriter& HtmlWriter::Open(std::string_view tag, Attributes attributes) {
  out_.append("<").append(tag);
  for (const auto& [name, value] : attributes) {
    if (!value.empty()) out_.append(" ").append(name).append("=\"").append(EscapeHtml(value)).append("\"");
  }
  out_ += '>';
  open_.emplace_back(tag);
  return *this;
}

HtmlWriter& HtmlWriter::Close() {
  out_.append("</").append(open_.back()).append(">");
  open_.pop_back();
  return *this;
}

HtmlWriter& HtmlWriter::Text(std::string_view text) {
  out_ += EscapeHtml(text);
  return *this;
}

HtmlWriter& HtmlWriter::Leaf(std::string_view tag, Attributes attributes, std::string_view text) {
  return Open(tag, attributes).Text(text).Close();
}

HtmlWriter& HtmlWriter::Raw(std::string_view html) {
  out_ += html;
  return *this;
}

std::string RenderPage(const Page& page) {
  const Asset& script = page.script ? *page.script : kScript;
  std::string styles = CspHash(kStyle.sha256);
  if (page.extra_style) styles += " " + CspHash(page.extra_style->sha256);
  std::string csp = fmt::format(
      "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'", styles,
      CspHash(script.sha256));
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<meta name=\"generator\" content=\"lowtide {}\">\n<title>{}</title>\n<link rel=\"icon\" href=\"{}\">\n<style>",
      page.lang == "zh" ? "zh-Hans" : "en", csp, kVersion, EscapeHtml(page.title), kIcon);
  out.append(kStyle.text).append("</style>\n");
  if (page.extra_style) out.append("<style>").append(page.extra_style->text).append("</style>\n");
  out.append("</head>\n<body>\n").append(page.body);
  out.append("\n<script type=\"application/json\" id=\"lowtide-data\">").append(ForScript(page.data_json));
  out.append("</script>\n<script>").append(script.text).append("</script>\n</body>\n</html>\n");
  return out;
}

}  // namespace lowtide::report
