#include "lint/suppress.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cctype>

#include "lint/suppress_scan.h"

namespace lowtide::lint {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t'; }

// The letter q is rare: two scans for it cost far less than one for n.
bool MentionsNoqa(std::string_view text) {
  for (char q : {'q', 'Q'}) {
    for (size_t at = text.find(q); at != std::string_view::npos; at = text.find(q, at + 1)) {
      if (at >= 2 && at + 1 < text.size() && ::strncasecmp(text.data() + at - 2, "noqa", 4) == 0) return true;
    }
  }
  return false;
}

size_t SkipSpace(std::string_view text, size_t at) {
  while (at < text.size() && IsSpace(text[at])) ++at;
  return at;
}

// Letters then digits, such as LT101 or E501.
size_t CodeEnd(std::string_view text, size_t at) {
  size_t letters = at;
  while (letters < text.size() && std::isalpha(static_cast<unsigned char>(text[letters]))) ++letters;
  size_t digits = letters;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
  return letters > at && digits > letters ? digits : at;
}

uint32_t CodePoints(std::string_view text) {
  return static_cast<uint32_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

void ReadCodes(std::string_view text, uint32_t limit, size_t at, Directive& directive) {
  std::string_view comment = text.substr(0, limit);
  for (;;) {
    at = SkipSpace(comment, at);
    size_t end = CodeEnd(comment, at);
    if (end == at) return;
    std::string code(comment.substr(at, end - at));
    std::transform(code.begin(), code.end(), code.begin(), [](unsigned char c) { return std::toupper(c); });
    directive.codes.push_back({std::move(code), static_cast<uint32_t>(at), static_cast<uint32_t>(end)});
    directive.end = static_cast<uint32_t>(end);
    at = SkipSpace(comment, end);
    if (at < comment.size() && comment[at] == ',') ++at;
  }
}

// A directive that begins at the '#' at `hash`, if there is one.
std::optional<Directive> ReadDirective(std::string_view text, const Comment& comment, size_t hash) {
  Directive directive;
  size_t at = SkipSpace(text, hash + 1);
  if (::strncasecmp(text.data() + at, "lowtide", std::min<size_t>(7, comment.end - at)) == 0 &&
      at + 7 < comment.end) {
    at = SkipSpace(text, at + 7);
    if (at >= comment.end || text[at] != ':') return std::nullopt;
    at = SkipSpace(text, at + 1);
    directive.whole_file = true;
  }
  if (at + 4 > comment.end || ::strncasecmp(text.data() + at, "noqa", 4) != 0) return std::nullopt;
  at += 4;
  if (at < comment.end && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_'))
    return std::nullopt;
  directive.line = comment.line;
  directive.start = static_cast<uint32_t>(hash);
  directive.end = static_cast<uint32_t>(at);
  size_t colon = SkipSpace(text, at);
  if (colon < comment.end && text[colon] == ':') ReadCodes(text, comment.end, colon + 1, directive);
  return directive;
}

bool Covers(const Directive& directive, const Directive::Code* code, const Diagnostic& diagnostic) {
  auto holds = [&](uint32_t line) { return directive.first_line <= line && line <= directive.line; };
  if (!directive.whole_file && !holds(diagnostic.line) && !holds(diagnostic.end_line)) return false;
  return !code || code->code == diagnostic.code;
}

// Deletes one code with the comma or blank before it, or the whole directive with the blanks before it.
Fix RemoveCode(const Directive& directive, size_t index, std::string_view text) {
  Edit edit;
  if (directive.codes.size() <= 1) {
    edit = {directive.start, directive.end, ""};
    while (edit.start > 0 && IsSpace(text[edit.start - 1])) --edit.start;
    bool alone = edit.start == 0 || text[edit.start - 1] == '\n' || text[edit.start - 1] == '\r';
    bool to_the_end = edit.end >= text.size() || text[edit.end] == '\n' || text[edit.end] == '\r';
    if (alone && to_the_end && edit.end < text.size()) edit.end += text.substr(edit.end, 2) == "\r\n" ? 2 : 1;
    if (!to_the_end) {
      edit.start = directive.start;
      edit.end = static_cast<uint32_t>(SkipSpace(text, edit.end));
    }
  } else if (index + 1 < directive.codes.size()) {
    edit = {directive.codes[index].start, directive.codes[index + 1].start, ""};
  } else {
    edit = {directive.codes[index - 1].end, directive.codes[index].end, ""};
  }
  return {true, "remove the unused suppression", {edit}, "删除无用的抑制注释"};
}

Diagnostic Unused(const Directive& directive, size_t index, std::string_view text) {
  Diagnostic unused;
  unused.code = kUnusedSuppression;
  unused.severity = finding::Severity::kNote;
  bool all = directive.codes.empty();
  unused.start = all ? directive.start : directive.codes[index].start;
  unused.end = all ? directive.end : directive.codes[index].end;
  unused.message =
      all ? "this suppression covers nothing: no rule reports anything in the file"
          : fmt::format("this suppression of {} covers nothing: the rule does not report {}",
                        directive.codes[index].code, directive.whole_file ? "in this file" : "here");
  unused.message_zh = all ? "这条抑制没有作用：文件中没有任何规则报告问题"
                          : fmt::format("对 {} 的抑制没有作用：该规则{}没有报告", directive.codes[index].code,
                                        directive.whole_file ? "在此文件中" : "在此处");
  unused.help = "delete it, so that it cannot hide a later finding";
  unused.help_zh = "删除它，以免掩盖以后的问题";
  unused.line = unused.end_line = directive.line;
  unused.column = directive.column + CodePoints(text.substr(directive.start, unused.start - directive.start));
  unused.end_column = unused.column + CodePoints(text.substr(unused.start, unused.end - unused.start));
  unused.fix = RemoveCode(directive, index, text);
  return unused;
}

// Directives of every checker.
std::vector<Directive> AllDirectives(std::string_view text) {
  std::vector<Directive> out;
  if (!MentionsNoqa(text)) return out;
  LineScan scan = ScanLines(text);
  for (const Comment& comment : scan.comments) {
    for (size_t hash = comment.start; hash < comment.end; hash = text.find('#', hash + 1)) {
      auto directive = ReadDirective(text, comment, hash);
      if (!directive) continue;
      uint32_t line_start = scan.line_starts[comment.line - 1];
      directive->first_line = directive->line;
      while (directive->first_line > 1 && !scan.comment_allowed[directive->first_line - 2])
        --directive->first_line;
      directive->column = 1 + CodePoints(text.substr(line_start, hash - line_start));
      out.push_back(std::move(*directive));
      break;
    }
  }
  return out;
}

}  // namespace

std::vector<Directive> FindDirectives(std::string_view text) {
  std::vector<Directive> all = AllDirectives(text);
  std::erase_if(all, [](const Directive& one) {
    return !one.codes.empty() &&
           std::none_of(one.codes.begin(), one.codes.end(),
                        [](const Directive::Code& code) { return code.code.starts_with("LT"); });
  });
  return all;
}

std::vector<Diagnostic> Suppress(std::vector<Diagnostic>& diagnostics,
                                 const std::vector<Directive>& directives, std::string_view text,
                                 size_t& suppressed) {
  std::vector<Diagnostic> unused;
  std::vector<bool> covered(diagnostics.size());
  auto cover = [&](const Directive& directive, const Directive::Code* code) {
    bool any = false;
    for (size_t i = 0; i < diagnostics.size(); ++i) {
      if (!Covers(directive, code, diagnostics[i])) continue;
      covered[i] = any = true;
    }
    return any;
  };
  for (const Directive& directive : directives) {
    // A bare `# noqa` may be meant for another checker; only what names lowtide is ours to judge.
    if (directive.codes.empty() && !cover(directive, nullptr) && directive.whole_file)
      unused.push_back(Unused(directive, 0, text));
    for (size_t i = 0; i < directive.codes.size(); ++i) {
      const auto& code = directive.codes[i];
      if (!code.code.starts_with("LT") || code.code == kUnusedSuppression) continue;
      if (!cover(directive, &code)) unused.push_back(Unused(directive, i, text));
    }
  }
  std::vector<Diagnostic> left;
  for (size_t i = 0; i < diagnostics.size(); ++i) {
    if (!covered[i]) left.push_back(std::move(diagnostics[i]));
  }
  suppressed += diagnostics.size() - left.size();
  diagnostics = std::move(left);
  std::erase_if(unused, [&](const Diagnostic& one) {
    return std::any_of(directives.begin(), directives.end(), [&](const Directive& directive) {
      return std::any_of(directive.codes.begin(), directive.codes.end(),
                         [&](const Directive::Code& code) { return Covers(directive, &code, one); });
    });
  });
  return unused;
}

Edit AddSuppression(std::string_view text, uint32_t line, const std::string& code) {
  LineScan scan = ScanLines(text);
  for (const Directive& directive : AllDirectives(text)) {
    if (directive.line != line || directive.whole_file || directive.codes.empty()) continue;
    return {directive.end, directive.end, ", " + code};
  }
  line = std::clamp<uint32_t>(line, 1, static_cast<uint32_t>(scan.line_starts.size()));
  while (line < scan.line_starts.size() && !scan.comment_allowed[line - 1]) ++line;
  size_t end = std::min(text.find_first_of("\r\n", scan.line_starts[line - 1]), text.size());
  while (end > scan.line_starts[line - 1] && IsSpace(text[end - 1])) --end;
  return {static_cast<uint32_t>(end), static_cast<uint32_t>(end), "  # noqa: " + code};
}

}  // namespace lowtide::lint
