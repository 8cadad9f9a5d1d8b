// What continuous integration systems read: GitHub, GitLab, JUnit.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "finding/catalogue.h"
#include "report/lint_report.h"

namespace lowtide::report {
namespace {

using finding::Severity;

// Workflow commands: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
std::string GithubEscape(const std::string& text, bool property) {
  std::string out;
  for (char c : text) {
    if (c == '%')
      out += "%25";
    else if (c == '\r')
      out += "%0D";
    else if (c == '\n')
      out += "%0A";
    else if (property && c == ':')
      out += "%3A";
    else if (property && c == ',')
      out += "%2C";
    else
      out += c;
  }
  return out;
}

std::string XmlEscape(const std::string& text) {
  std::string line = text, out;
  std::replace(line.begin(), line.end(), '\n', ' ');
  for (char c : Printable(line)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

const char* GitlabSeverity(Severity severity) {
  return severity == Severity::kError ? "critical" : severity == Severity::kWarning ? "major" : "minor";
}

const char* GithubLevel(Severity severity) {
  return severity == Severity::kError ? "error" : severity == Severity::kWarning ? "warning" : "notice";
}

}  // namespace

std::string LintGithub(const lint::Report& report) {
  std::string out;
  for (const lint::FileReport& file : report.files) {
    for (const lint::Located& item : file.items) {
      const lint::Diagnostic& one = item.diagnostic;
      std::string text = fmt::format("{}:{}:{}: {} {}", lint::ShownPath(file, item), item.line, one.column,
                                     one.code, one.message);
      if (!one.help.empty()) text += "\n" + one.help;
      // endColumn only counts when the span is on one line.
      std::string end = one.line == one.end_line ? fmt::format(",endColumn={}", one.end_column) : "";
      out += fmt::format("::{} title=lowtide {},file={},line={},endLine={},col={}{}::{}\n",
                         GithubLevel(one.severity), one.code, GithubEscape(file.path, true), item.line,
                         item.end_line, one.column, end, GithubEscape(text, false));
    }
  }
  return out;
}

std::string LintGitlab(const lint::Report& report) {
  JsonWriter json(1);
  json.BeginArray();
  for (const lint::FileReport& file : report.files) {
    for (const lint::Located& item : file.items) {
      const lint::Diagnostic& one = item.diagnostic;
      json.BeginObject()
          .Field("description", fmt::format("{}: {}", one.code, one.message))
          .Field("check_name", one.code)
          .Field("fingerprint", item.fingerprint)
          .Field("severity", GitlabSeverity(one.severity))
          .Key("location")
          .BeginObject()
          .Field("path", file.path)
          .Key("positions")
          .BeginObject();
      json.Key("begin").BeginObject().Field("line", item.line).Field("column", one.column).EndObject();
      json.Key("end").BeginObject().Field("line", item.end_line).Field("column", one.end_column).EndObject();
      json.EndObject().EndObject().EndObject();
    }
  }
  json.EndArray();
  return json.Take() + "\n";
}

std::string LintJunit(const lint::Report& report) {
  size_t total = 0;
  std::string suites;
  for (const lint::FileReport& file : report.files) {
    if (file.items.empty()) continue;
    total += file.items.size();
    suites += fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\">\n",
                          XmlEscape(file.path), file.items.size(), file.items.size());
    for (const lint::Located& item : file.items) {
      const lint::Diagnostic& one = item.diagnostic;
      std::string place = fmt::format("{}:{}:{}", lint::ShownPath(file, item), item.line, one.column);
      suites += fmt::format(
          "    <testcase name=\"{} at {}\" classname=\"{}\" line=\"{}\">\n      <failure message=\"{}\" "
          "type=\"{}\">{}</failure>\n    </testcase>\n",
          one.code, XmlEscape(place), XmlEscape(file.path), item.line, XmlEscape(one.message),
          finding::SeverityName(one.severity), XmlEscape(one.message + " " + one.help));
    }
    suites += "  </testsuite>\n";
  }
  if (suites.empty()) {
    suites =
        "  <testsuite name=\"lowtide lint\" tests=\"1\" failures=\"0\" errors=\"0\">\n    <testcase "
        "name=\"nothing found\" classname=\"lowtide\"/>\n  </testsuite>\n";
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"lowtide lint\" tests=\"{}\" "
      "failures=\"{}\" errors=\"0\">\n{}</testsuites>\n",
      total ? total : 1, total, suites);
}

}  // namespace lowtide::report
