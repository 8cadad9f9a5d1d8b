#include "cli/verdict.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "cli/color.h"
#include "cli/fail_on.h"
#include "report/plot.h"
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
    for (size_t k = i; k < end; ++k)
      low = std::min(low, series.points[k].value), high = std::max(high, series.points[k].value);
    view.points.push_back({series.points[i].step, high, low});
  }
  for (size_t i = view.points.size(); i-- > 1;)
    view.points[i - 1].low = std::min(view.points[i - 1].low, view.points[i].low);
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

struct Judged {
  series::Table table;
  std::vector<verdict::Judgement> judgements;
  finding::Document document;
};

Judged Judge(const VerdictOptions& options) {
  Judged out;
  out.table = series::ReadTable(options.file);
  verdict::TableOptions judge;
  if (options.capacity) judge.capacity = static_cast<double>(options.capacity);
  out.judgements = verdict::JudgeTable(out.table, judge);
  for (auto& judgement : out.judgements) {
    out.document.verdicts.push_back(verdict::ToRow(judgement));
    if (auto finding = verdict::ToFinding(judgement)) out.document.findings.push_back(*finding);
  }
  if (auto note = SkippedNote(out.table, options.file)) out.document.findings.push_back(*note);
  return out;
}

std::string Headline(const verdict::Judgement& j, const Terminal& terminal) {
  std::string name = verdict::KindName(j.kind);
  for (auto& c : name) c = c == '_' ? ' ' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  bool bad = j.kind == verdict::Kind::kLeak;
  bool mind = j.kind == verdict::Kind::kCapacity || j.kind == verdict::Kind::kFragmentation || j.watch;
  std::string colored = bad ? terminal.Red(name) : mind ? terminal.Yellow(name) : terminal.Green(name);
  std::string where = j.pool + (j.ranks > 1 || j.rank > 0 ? fmt::format(", rank {}", j.rank) : "");
  std::string sure = j.confidence > 0 ? fmt::format("  ({:.3g} % sure)", 100 * j.confidence) : "";
  return fmt::format("{}{}  {}{}\n", colored, j.alarm ? terminal.Red(" ALARM") : "", terminal.Bold(where),
                     terminal.Dim(sure));
}

void PrintText(const Judged& judged, const Terminal& terminal, bool zh) {
  for (size_t i = 0; i < judged.judgements.size(); ++i) {
    auto& j = judged.judgements[i];
    fmt::print("{}", Headline(j, terminal));
    bool long_form = j.kind != verdict::Kind::kHealthy || judged.judgements.size() <= 2;
    if (long_form && judged.table.series[i].points.size() > 1)
      fmt::print("{}", report::PlotSeries(ViewOf(judged.table.series[i], j.capacity), terminal));
    fmt::print("  {} {}\n", terminal.Dim(zh ? "原因" : "why "),
               zh ? verdict::ReasonZh(j) : verdict::Reason(j));
    std::string help = zh ? verdict::HelpZh(j) : verdict::Help(j);
    auto finding = verdict::ToFinding(j);
    if (!help.empty()) fmt::print("  {} {}\n", terminal.Dim(zh ? "建议" : "next"), help);
    if (finding) fmt::print("  {} lowtide explain {}\n", terminal.Dim(zh ? "更多" : "more"), finding->code);
    fmt::print("\n");
  }
  for (auto& finding : judged.document.findings)
    if (finding.code == "LT910")
      fmt::print("{} {}\n", terminal.Dim("note LT910"), zh ? finding.message_zh : finding.message);
}

}  // namespace

int Verdict(const VerdictOptions& options, const CommonOptions& common) {
  Judged judged = Judge(options);
  if (options.format == "json")
    fmt::print("{}\n", finding::ToJson(judged.document));
  else
    PrintText(judged, TerminalFor(1, common), common.lang == "zh");
  return FailOn(judged.document.findings, options.fail_on, 0);
}

}  // namespace lowtide::cli
