#include "report/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/units.h"
#include "report/plot.h"
#include "report/source.h"

namespace lowtide::report {
namespace {

using finding::Finding;
using finding::HolderRow;
using finding::Severity;
using finding::VerdictRow;

class Writer {
 public:
  Writer(const RunView& view, const Terminal& terminal, const std::string& lang)
      : view_(view), terminal_(terminal), chinese_(lang == "zh") {}

  std::string Write() {
    Header();
    std::vector<const VerdictRow*> rows;
    for (const VerdictRow& row : view_.document.verdicts) rows.push_back(&row);
    std::stable_sort(rows.begin(), rows.end(), [](auto* a, auto* b) { return Urgency(*a) < Urgency(*b); });
    for (const VerdictRow* row : rows) {
      if (Urgency(*row) < kQuiet) Block(*row);
    }
    Quiet(rows);
    for (const Finding& finding : view_.document.findings) {
      if (!shown_.count(&finding)) Standalone(finding);
    }
    Footer();
    return std::move(out_);
  }

 private:
  static constexpr int kQuiet = 3;

  static int Urgency(const VerdictRow& row) {
    if (row.verdict == "leak") return row.alarm ? 0 : 1;
    return row.verdict == "capacity" || row.verdict == "fragmentation" ? 2 : kQuiet;
  }

  const char* Pick(const char* english, const char* chinese) const { return chinese_ ? chinese : english; }
  const std::string& Pick(const std::string& english, const std::string& chinese) const {
    return chinese_ && !chinese.empty() ? chinese : english;
  }

  template <typename... Args>
  void Line(fmt::format_string<Args...> format, Args&&... args) {
    out_ += fmt::format(format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void Header() {
    uint64_t steps = 0;
    for (const RankView& rank : view_.ranks) steps = std::max(steps, rank.steps);
    std::string ended = view_.exit_code ? fmt::format(fmt::runtime(Pick(", exit code {}", "，退出码 {}")), *view_.exit_code) : "";
    Line("{} {}", terminal_.Bold("lowtide:"),
         fmt::format(fmt::runtime(Pick("{}: {} steps on {} rank{} in {}{}", "{}：{} 步，{} 个进程{}，用时 {}{}")),
                     view_.command, FormatCount(steps), view_.ranks.size(),
                     chinese_ || view_.ranks.size() == 1 ? "" : "s", FormatDuration(view_.seconds), ended));
    for (const RankView& rank : view_.ranks) {
      bool notable = rank.lost > 0 || (!rank.ended.empty() && rank.ended != "exit 0");
      if (!notable || (view_.ranks.size() == 1 && rank.lost == 0)) continue;
      Line("  {}", fmt::format(fmt::runtime(Pick("rank {} (pid {}): {} steps, {}{}", "进程 {}（pid {}）：{} 步，{}{}")),
                               rank.rank, rank.pid, FormatCount(rank.steps), rank.ended,
                               rank.lost ? fmt::format(fmt::runtime(Pick(", {} records lost", "，丢失 {} 条记录")), rank.lost) : ""));
    }
  }

  std::string PoolName(const std::string& pool) const {
    if (pool == "cpu") return Pick("CPU tensors", "CPU 张量");
    if (pool == "heap") return Pick("C heap", "C 堆");
    if (pool == "host") return Pick("process memory", "进程内存");
    if (pool == "workers") return Pick("DataLoader workers", "DataLoader 工作进程");
    if (pool == "shm") return Pick("shared memory", "共享内存");
    if (pool == "fds") return Pick("file descriptors", "文件描述符");
    return pool;
  }

  std::string Amount(const VerdictRow& row, double rate) const {
    return row.pool == "fds" ? fmt::format("{:.3g}/step", rate) : FormatRate(rate);
  }

  std::string VerdictWord(const VerdictRow& row) const {
    if (row.verdict == "leak") return terminal_.Red(Pick("LEAK", "泄漏"));
    if (row.verdict == "capacity") return terminal_.Yellow(Pick("CAPACITY", "容量不足"));
    if (row.verdict == "fragmentation") return terminal_.Yellow(Pick("FRAGMENTATION", "碎片"));
    return row.verdict;
  }

  void Headline(const VerdictRow& row, const Finding* finding) {
    std::string line = VerdictWord(row) + " " + PoolName(row.pool);
    if (view_.ranks.size() > 1) line += fmt::format(fmt::runtime(Pick(", rank {}", "，进程 {}")), row.rank);
    if (row.bytes_per_step && row.verdict == "leak") {
      line += ": " + terminal_.Bold((*row.bytes_per_step >= 0 ? "+" : "") + Amount(row, *row.bytes_per_step));
      if (row.interval) {
        line += fmt::format(fmt::runtime(Pick(" (95 %: {} to {})", "（95 %：{} 到 {}）")), Amount(row, row.interval->first),
                            Amount(row, row.interval->second));
      }
      if (row.onset_step) line += fmt::format(fmt::runtime(Pick(", since step {}", "，自第 {} 步起")), *row.onset_step);
      if (row.phase && *row.phase != "step") line += fmt::format(fmt::runtime(Pick(", in {}", "，发生在 {}")), *row.phase);
    }
    if (finding) line += "  " + terminal_.Dim(finding->code);
    Line("\n{}", line);
  }

  void Label(const char* english, const char* chinese, const std::string& text) {
    if (text.empty()) return;
    Line("  {} {}", terminal_.Cyan(fmt::format("{:<5}", Pick(english, chinese))), text);
  }

  const Finding* FindingOf(const VerdictRow& row) {
    if (row.fingerprint.empty()) return nullptr;
    for (const Finding& finding : view_.document.findings) {
      if (finding.fingerprint == row.fingerprint) return &finding;
    }
    return nullptr;
  }

  void Block(const VerdictRow& row) {
    const Finding* finding = FindingOf(row);
    if (finding) shown_.insert(finding);
    Headline(row, finding);
    Plot(row);
    std::string sure = row.confidence > 0 ? fmt::format(fmt::runtime(Pick(" (confidence {:.4g} %)", "（置信度 {:.4g} %）")), row.confidence * 100) : "";
    Label("why", "原因", Pick(row.reason, row.reason_zh) + sure);
    Holders(row);
    if (row.steps_to_oom) {
      std::string when = row.seconds_to_oom ? fmt::format(fmt::runtime(Pick(", about {}", "，约 {}")), FormatDuration(*row.seconds_to_oom)) : "";
      Label("left", "剩余", fmt::format(fmt::runtime(Pick("{} steps until out of memory{}", "再过 {} 步内存耗尽{}")),
                                        FormatCount(static_cast<uint64_t>(std::max(0.0, *row.steps_to_oom))), when));
    }
    if (finding) Label("next", "建议", Pick(finding->help, finding->help_zh));
  }

  void Holders(const VerdictRow& row) {
    int shown = 0;
    for (const HolderRow& holder : view_.document.holders) {
      bool same = holder.rank == row.rank && (holder.pool == row.pool || (IsHost(holder.pool) && IsHost(row.pool)));
      if (!same || row.verdict != "leak" || shown == 3) continue;
      Holder(holder, shown++ == 0);
    }
  }

  // The same growth shows in several pools of the host: a tensor's bytes in cpu, its graph's nodes in heap.
  static bool IsHost(const std::string& pool) { return pool == "cpu" || pool == "heap" || pool == "host"; }

  void Holder(const HolderRow& holder, bool first) {
    std::string rate = holder.bytes_per_step > 0 ? ", +" + FormatRate(holder.bytes_per_step) : "";
    Label(first ? "who" : "", first ? "持有" : "",
          fmt::format(fmt::runtime(Pick("{}  holds {} in {} objects{}{}", "{}  持有 {}，{} 个对象{}{}")), terminal_.Bold(holder.path),
                      FormatBytes(static_cast<double>(holder.retained_bytes)), FormatCount(holder.objects), rate,
                      holder.via_autograd ? Pick(", through the autograd graph", "，经由 autograd 图") : ""));
    if (!first || holder.file.empty()) return;
    Line("        {} {}:{}", terminal_.Cyan("-->"), holder.file, holder.line);
    std::string source = SourceLine(holder.file, holder.line);
    if (!source.empty()) Line("            {}", source);
    if (!holder.root.empty()) Line("        {}", terminal_.Dim(fmt::format(fmt::runtime(Pick("root: {}", "根：{}")), holder.root)));
  }

  void Plot(const VerdictRow& row) {
    for (const SeriesView& series : view_.series) {
      if (series.pool != row.pool || series.rank != row.rank || series.points.size() < 8) continue;
      out_ += PlotSeries(series, terminal_);
      return;
    }
  }

  void Quiet(const std::vector<const VerdictRow*>& rows) {
    bool first = true;
    for (const VerdictRow* row : rows) {
      if (Urgency(*row) < kQuiet) continue;
      if (first) Line("");
      first = false;
      std::string rank = view_.ranks.size() > 1 ? fmt::format(fmt::runtime(Pick(" rank {}", " 进程 {}")), row->rank) : "";
      std::string word = row->verdict == "healthy" ? terminal_.Green(Pick("healthy", "健康"))
                         : row->verdict == "insufficient" ? Pick("not enough evidence", "证据不足")
                         : row->verdict == "bounded" ? Pick("bounded growth", "有界增长")
                                                     : Pick("step change", "阶跃");
      Line("{} {}{}: {}", word, PoolName(row->pool), rank, Pick(row->reason, row->reason_zh));
      if (const Finding* finding = FindingOf(*row)) shown_.insert(finding);
    }
  }

  void Standalone(const Finding& finding) {
    std::string severity = finding::SeverityName(finding.severity);
    std::string word = finding.severity == Severity::kError     ? terminal_.Red(severity)
                       : finding.severity == Severity::kWarning ? terminal_.Yellow(severity)
                                                                : terminal_.Cyan(severity);
    Line("\n{} {}: {}", word, finding.code, Pick(finding.message, finding.message_zh));
    for (const auto& where : finding.where) {
      if (where.file.empty()) continue;
      Line("        {} {}:{}", terminal_.Cyan("-->"), where.file, where.line);
      if (std::string source = SourceLine(where.file, where.line); !source.empty()) Line("            {}", source);
    }
    Label("next", "建议", Pick(finding.help, finding.help_zh));
  }

  void Footer() {
    std::string folder = view_.folder_display.empty() ? view_.folder : view_.folder_display;
    if (folder.empty()) return;
    std::string code;
    for (const Finding& finding : view_.document.findings) {
      if (finding.severity == Severity::kError && code.empty()) code = finding.code;
    }
    Line("\n{}", terminal_.Dim(fmt::format(fmt::runtime(Pick("again: lowtide report {}{}", "再看一遍：lowtide report {}{}")), folder,
                                           code.empty() ? "" : fmt::format(fmt::runtime(Pick("   more: lowtide explain {}", "   详解：lowtide explain {}")), code))));
  }

  const RunView& view_;
  const Terminal& terminal_;
  bool chinese_;
  std::string out_;
  std::set<const Finding*> shown_;
};

}  // namespace

std::string ToText(const RunView& view, const Terminal& terminal, const std::string& lang) {
  return Writer(view, terminal, lang).Write();
}

}  // namespace lowtide::report
