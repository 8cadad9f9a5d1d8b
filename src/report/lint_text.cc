#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "finding/catalogue.h"
#include "report/lint_report.h"

namespace lowtide::report {
namespace {

using finding::Severity;
using lint::FileReport;
using lint::Located;

std::string Colored(const Terminal& terminal, Severity severity, const std::string& text) {
  switch (severity) {
    case Severity::kError:
      return terminal.Red(text);
    case Severity::kWarning:
      return terminal.Yellow(text);
    case Severity::kNote:
      return terminal.Cyan(text);
  }
  return text;
}

const char* SeverityIn(Severity severity, bool chinese) {
  if (!chinese) return finding::SeverityName(severity);
  return severity == Severity::kError ? "错误" : severity == Severity::kWarning ? "警告" : "提示";
}

const std::string& Shown(const std::string& english, const std::string& chinese, bool wants_chinese) {
  return wants_chinese && !chinese.empty() ? chinese : english;
}

// Every line of `text` behind `lead`; the first behind `first`.
std::string Indented(const std::string& text, const std::string& first, const std::string& lead) {
  std::string out = first;
  size_t at = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', at)) {
    out += Printable(text.substr(at, end - at)) + "\n" + lead;
    at = end + 1;
  }
  return out + Printable(text.substr(at)) + "\n";
}

std::string Block(const FileReport& file, const Located& item, const Terminal& terminal, bool chinese) {
  const lint::Diagnostic& one = item.diagnostic;
  std::string place = fmt::format("{}:{}:{}", lint::ShownPath(file, item), item.line, one.column);
  std::string title = Shown(one.message, one.message_zh, chinese);
  std::string label = fmt::format("{}[{}]", SeverityIn(one.severity, chinese), one.code);
  std::string out = fmt::format("{}: {} {}\n", terminal.Bold(Printable(place)),
                                Colored(terminal, one.severity, label), Printable(title));
  std::string gutter(fmt::format("{}", item.line).size(), ' ');
  out += CodeFrame(file.text, one.line, one.column, one.end_line == one.line ? one.end_column : 0, item.line,
                   terminal);
  const std::string lead = gutter + " " + terminal.Dim("=") + " ";
  if (!one.help.empty())
    out += Indented(Shown(one.help, one.help_zh, chinese), lead + terminal.Bold(chinese ? "建议" : "help") + ": ",
                    gutter + "         ");
  if (one.fix) {
    std::string how = chinese ? (one.fix->safe ? "安全，用 --fix 执行" : "可能改变结果，用 --unsafe-fixes 执行")
                              : (one.fix->safe ? "safe, --fix does it" : "may change results, --unsafe-fixes does it");
    out += fmt::format("{}{}: {} ({})\n", lead, terminal.Bold(chinese ? "修复" : "fix"),
                       Printable(Shown(one.fix->title, one.fix->title_zh, chinese)), how);
  }
  return out + "\n";
}

std::string Plural(size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

std::string LintText(const lint::Report& report, const Terminal& terminal, const std::string& lang) {
  std::string out;
  for (const FileReport& file : report.files) {
    for (const Located& item : file.items) out += Block(file, item, terminal, lang == "zh");
  }
  return out;
}

std::string LintConcise(const lint::Report& report, const Terminal& terminal) {
  std::string out;
  for (const FileReport& file : report.files) {
    for (const Located& item : file.items) {
      const lint::Diagnostic& one = item.diagnostic;
      std::string mark = one.fix && one.fix->safe ? terminal.Cyan("[*]") + " " : "";
      std::string message = one.message;
      std::replace(message.begin(), message.end(), '\n', ' ');
      out +=
          fmt::format("{}:{}:{}: {} {}{}\n", terminal.Bold(Printable(lint::ShownPath(file, item))), item.line,
                      one.column, Colored(terminal, one.severity, one.code), mark, Printable(message));
    }
  }
  return out;
}

namespace {

struct Tally {
  std::map<Severity, size_t, std::greater<>> by_severity;
  size_t found = 0, files = 0;
  std::string first;  // the code to read about
};

Tally Count(const lint::Report& report) {
  Tally tally;
  for (const FileReport& file : report.files) {
    tally.files += !file.items.empty();
    for (const Located& item : file.items) {
      ++tally.by_severity[item.diagnostic.severity];
      ++tally.found;
      if (tally.first.empty() || item.diagnostic.severity == Severity::kError) tally.first = item.diagnostic.code;
    }
  }
  return tally;
}

std::string SummaryZh(const lint::Report& report, const Tally& tally, const Terminal& terminal, bool unsafe_fixes) {
  std::string out;
  if (report.fixed) out += fmt::format("已修复 {} 处。", report.fixed);
  if (tally.found == 0) {
    out += terminal.Green("没有发现问题") + fmt::format("，检查了 {} 个文件", report.checked);
  } else {
    std::string parts;
    for (auto [severity, count] : tally.by_severity) {
      parts += fmt::format("{}{} {}", parts.empty() ? "" : "，", SeverityIn(severity, true), count);
    }
    out += fmt::format("{}（{} 个文件中的 {} 个）：{}", terminal.Bold(fmt::format("发现 {} 个问题", tally.found)),
                       report.checked, tally.files, parts);
  }
  if (report.suppressed) out += fmt::format("；{} 个被 noqa 抑制", report.suppressed);
  if (report.in_baseline) out += fmt::format("；{} 个已在基线中", report.in_baseline);
  out += "。\n";
  if (report.fixable) out += fmt::format("{} 个可以自动修复：加上 --fix，或先用 --diff 查看。\n", report.fixable);
  if (report.unsafe_fixable && !unsafe_fixes) {
    out += fmt::format("另有 {} 个可以修复，但需检查结果：--unsafe-fixes。\n", report.unsafe_fixable);
  }
  if (tally.found) out += fmt::format("原因与对策：lowtide --lang zh explain {}\n", tally.first);
  return out;
}

}  // namespace

std::string LintSummary(const lint::Report& report, const Terminal& terminal, bool unsafe_fixes,
                        const std::string& lang) {
  const Tally tally = Count(report);
  if (lang == "zh") return SummaryZh(report, tally, terminal, unsafe_fixes);
  const auto& [by_severity, found, files, first] = tally;
  std::string out;
  if (report.fixed) out += fmt::format("{} fixed. ", Plural(report.fixed, "finding"));
  if (found == 0) {
    out += terminal.Green("Nothing found") + fmt::format(" in {}", Plural(report.checked, "file"));
  } else {
    std::string parts;
    for (auto [severity, count] : by_severity) {
      parts += (parts.empty() ? "" : ", ") + Plural(count, finding::SeverityName(severity));
    }
    out += fmt::format("{} in {} of {}: {}", terminal.Bold(Plural(found, "finding")), files,
                       Plural(report.checked, "file"), parts);
  }
  if (report.suppressed) out += fmt::format("; {} suppressed by noqa", report.suppressed);
  if (report.in_baseline) out += fmt::format("; {} known from the baseline", report.in_baseline);
  out += ".\n";
  if (report.fixable)
    out += fmt::format("{} can be fixed: add --fix, or --diff to look first.\n", report.fixable);
  if (report.unsafe_fixable && !unsafe_fixes) {
    out += fmt::format("{} more can be fixed if you look at the result: --unsafe-fixes.\n",
                       report.unsafe_fixable);
  }
  if (found) out += fmt::format("Why, and what to do: lowtide explain {}\n", first);
  return out;
}

std::string LintStatistics(const lint::Report& report) {
  struct Row {
    size_t count = 0;
    bool fixable = false;
  };
  std::map<std::string, Row> rows;
  for (const FileReport& file : report.files) {
    for (const Located& item : file.items) {
      Row& row = rows[item.diagnostic.code];
      ++row.count;
      row.fixable |= item.diagnostic.fix && item.diagnostic.fix->safe;
    }
  }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  std::string out;
  for (const auto& [code, row] : sorted) {
    const finding::Code* known = finding::FindCode(code);
    out += fmt::format("{:>6}  {}  {}  {}\n", row.count, code, row.fixable ? "[*]" : "[ ]",
                       known ? known->name : "");
  }
  return out;
}

}  // namespace lowtide::report
