#include "cli/verdict.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "cli/color.h"
#include "cli/fail_on.h"
#include "report/text.h"
#include "series/table.h"
#include "verdict/job.h"

namespace lowtide::cli {
namespace {

constexpr size_t kShownPoints = 1024;

// The series as the plot shows it: thinned, with the lower edge (what later steps never went below).
report::SeriesView ViewOf(const series::Series& series, std::optional<double> capacity) {
  report::SeriesView view{series.pool, series.rank, {}, capacity};
  size_t stride = (series.points.size() + kShownPoints - 1) / kShownPoints;
  for (size_t i = 0; i < series.points.size(); i += std::max<size_t>(1, stride)) {
    size_t end = std::min(series.points.size(), i + stride);
    double low = series.points[i].value, high = low;
    for (size_t k = i; k < end; ++k) low = std::min(low, series.points[k].value), high = std::max(high, series.points[k].value);
    view.points.push_back({series.points[i].step, high, low});
  }
  for (size_t i = view.points.size(); i-- > 1;) view.points[i - 1].low = std::min(view.points[i - 1].low, view.points[i].low);
  return view;
}

// What was left out of the file, as one note.
std::optional<finding::Finding> SkippedNote(const series::Table& table, const std::string& file) {
  std::string text;
  double total = 0;
  for (auto& [reason, count] : table.skipped) {
    if (table.format == "log" && reason == "line without a memory figure") continue;  // what logs are made of
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", reason, count);
    total += static_cast<double>(count);
  }
  if (text.empty()) return std::nullopt;
  finding::Finding out;
  out.code = "LT910", out.severity = finding::Severity::kNote;
  out.message = fmt::format("{}: not used: {}; {} rows were.", file, text, table.rows);
  out.message_zh = fmt::format("{}: 未使用: {}; 已使用 {} 行。", file, text, table.rows);
  out.where.push_back({});
  out.where.back().file = file;
  out.evidence.push_back({"skipped", total, "rows"});
  out.help = "Look at these rows; the verdict rests on the others.";
  out.help_zh = "请检查这些行; 判定仅依据其余行。";
  out.fingerprint = finding::Fingerprint(out.code, {file});
  return out;
}

report::RunView Judge(const VerdictOptions& options) {
  series::Table table = series::ReadTable(options.file);
  verdict::TableOptions judge;
  if (options.capacity) judge.capacity = static_cast<double>(options.capacity);
  report::RunView view;
  view.folder = view.folder_display = options.file;
  for (auto& series : table.series) view.series.push_back(ViewOf(series, judge.capacity ? judge.capacity : series.capacity));
  for (auto& judgement : verdict::JudgeTable(table, judge)) {
    view.document.verdicts.push_back(verdict::ToRow(judgement));
    if (auto finding = verdict::ToFinding(judgement)) view.document.findings.push_back(*finding);
  }
  if (auto note = SkippedNote(table, options.file)) view.document.findings.push_back(*note);
  return view;
}

}  // namespace

int Verdict(const VerdictOptions& options, const CommonOptions& common) {
  report::RunView view = Judge(options);
  if (options.format == "json") fmt::print("{}\n", finding::ToJson(view.document));
  else fmt::print("{}", report::ToText(view, TerminalFor(1, common), common.lang));
  return FailOn(view.document.findings, options.fail_on, 0);
}

}  // namespace lowtide::cli
