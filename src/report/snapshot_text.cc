#include <fmt/core.h>

#include <algorithm>

#include "base/units.h"
#include "report/columns.h"
#include "report/plot.h"
#include "report/snapshot_levels.h"
#include "report/snapshot_places.h"
#include "report/snapshot_report.h"

namespace lowtide::report {
namespace {

using snapshot::AllocatorConfig;
using snapshot::DeviceReport;
using snapshot::Explanation;
using snapshot::Share;
using snapshot::WhatIf;

std::string Bytes(uint64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

std::string Signed(int64_t bytes) { return (bytes > 0 ? "+" : "") + FormatBytes(static_cast<double>(bytes)); }

class Writer {
 public:
  Writer(const SnapshotView& view, const Terminal& terminal, const SnapshotOptions& options)
      : view_(view),
        terminal_(terminal),
        options_(options),
        places_(options.hide_sources),
        zh_(options.lang == "zh"),
        width_(std::clamp(terminal.width, 60, 160)) {}

  std::string Write() {
    Findings();
    if (view_.ranks) Ranks();
    if (view_.diff) Diff();
    for (const Explanation& file : view_.files) File(file);
    return std::move(out_);
  }

 private:
  const char* Say(const char* english, const char* chinese) const { return zh_ ? chinese : english; }
  void Line(const std::string& text) { out_ += text + "\n"; }
  void Heading(const std::string& text) { Line("\n" + terminal_.Bold(text)); }

  // Paragraphs are broken at spaces to the terminal's width.
  void Paragraph(const std::string& text, const std::string& indent) {
    const size_t room = static_cast<size_t>(width_) - indent.size();
    size_t at = 0;
    while (at < text.size()) {
      size_t end = std::min(text.size(), at + room);
      if (end < text.size()) {
        const size_t space = text.rfind(' ', end);
        if (space != std::string::npos && space > at) end = space;
        while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
      }
      Line(indent + text.substr(at, end - at));
      at = end;
      while (at < text.size() && text[at] == ' ') ++at;
    }
  }

  void Findings() {
    for (const auto& original : view_.findings) {
      const auto finding = places_.Of(original);
      const std::string mark = finding.severity == finding::Severity::kError ? terminal_.Red(finding.code)
                               : finding.severity == finding::Severity::kWarning
                                   ? terminal_.Yellow(finding.code)
                                   : terminal_.Cyan(finding.code);
      Line(mark);
      Paragraph(zh_ && !finding.message_zh.empty() ? finding.message_zh : finding.message, "  ");
      for (const auto& where : finding.where)
        Line(terminal_.Dim(fmt::format("  at {}:{}", places_.Path(where.file), where.line)));
      if (!finding.help.empty()) Paragraph(finding.help, "  -> ");
    }
    if (view_.findings.empty())
      Line(terminal_.Green(Say("Nothing to report: no out-of-memory, no growth, no waste worth a line.",
                               "没有发现问题: 无显存不足, 无增长, 无明显浪费.")));
  }

  void Ranks() {
    const auto& ranks = *view_.ranks;
    Heading(Say("Ranks", "各 rank"));
    Line(terminal_.Dim(fmt::format("  {:>5}  {:>7}  {:>10}  {:>10}  {:<12}  {}", "rank", "device", "peak",
                                   "reserved", "growth", "")));
    for (size_t i = 0; i < ranks.rows.size(); ++i) {
      const auto& row = ranks.rows[i];
      std::string notes;
      if (static_cast<int>(i) == ranks.highest) notes += Say("highest peak  ", "峰值最高  ");
      if (row.died)
        notes += static_cast<int>(i) == ranks.first_dead ? Say("died first", "最先显存不足")
                                                         : Say("out of memory", "显存不足");
      Line(fmt::format("  {:>5}  cuda:{:<2}  {:>10}  {:>10}  {:<12}  {}", row.rank, row.device,
                       Bytes(row.peak), Bytes(row.reserved), row.growth, notes));
    }
    Line(fmt::format("  {} {:.1f} %", Say("highest peak above the median by", "最高峰值高出中位数"),
                     100 * ranks.imbalance));
  }

  void ChangeRows(const char* title, const std::vector<snapshot::Change>& changes) {
    Line(terminal_.Dim(fmt::format("  {}", title)));
    size_t shown = 0;
    for (const auto& change : changes) {
      if (change.delta() == 0 || shown++ == options_.rows) break;
      const std::string delta = FitRight(Signed(change.delta()), 11);
      Line(fmt::format(
          "  {}  {:>10} -> {:<10}  {}", change.delta() > 0 ? terminal_.Red(delta) : terminal_.Green(delta),
          Bytes(change.before), Bytes(change.after), CutTo(places_.Label(change.label), width_ - 42)));
    }
    if (!shown) Line(Say("  no difference", "  没有差别"));
  }

  void Diff() {
    for (const auto& diff : *view_.diff) {
      Heading(fmt::format("{} cuda:{}: {} {} -> {} ({}), {} {} -> {}", Say("Against", "对比"), diff.device,
                          Say("peak", "峰值"), Bytes(diff.peak_before), Bytes(diff.peak_after),
                          Signed(static_cast<int64_t>(diff.peak_after - diff.peak_before)),
                          Say("reserved", "保留"), Bytes(diff.reserved_before), Bytes(diff.reserved_after)));
      ChangeRows(Say("at the peak, by line", "峰值, 按行"), diff.by_line);
      ChangeRows(Say("at the peak, by stack", "峰值, 按调用栈"), diff.by_stack);
    }
  }

  void File(const Explanation& file) {
    const auto& snapshot = *file.snapshot;
    Heading(fmt::format(
        "{}  {}", places_.Path(snapshot.file),
        terminal_.Dim(fmt::format("{} {}, {}", snapshot.container, Bytes(snapshot.file_bytes),
                                  snapshot.family.starts_with("list") || snapshot.family == "torch_npu"
                                      ? snapshot.family
                                      : "torch " + snapshot.family))));
    for (const auto& sentence : snapshot.missing) Paragraph(sentence, "  ! ");
    if (file.devices.empty())
      Line(Say("  no device has memory or events in this file", "  文件中没有任何设备的显存或事件"));
    for (const DeviceReport& device : file.devices) Device(file, device);
  }

  void Device(const Explanation& file, const DeviceReport& device) {
    Line("");
    Line(terminal_.Bold(fmt::format("cuda:{}", device.device)) +
         fmt::format("  {} {}   {} {}   {} {}   {} {}", Say("reserved", "保留"), Bytes(device.reserved),
                     Say("allocated", "已分配"), Bytes(device.allocated), Say("active", "活动"),
                     Bytes(device.active), Say("requested", "请求"), Bytes(device.requested)));
    Line(terminal_.Dim(fmt::format("        {} segments, {} blocks, {} events, {} stacks",
                                   FormatCount(device.segments), FormatCount(device.blocks),
                                   FormatCount(device.events), FormatCount(device.stacks))));
    Timeline(device);
    Peak(device);
    for (size_t i = 0; i < device.ooms.size() && i < 3; ++i) Oom(file, device.ooms[i]);
    Growth(device);
    Cut(device);
    Replay(device);
  }

  void Timeline(const DeviceReport& device) {
    if (device.events < 8) return;
    const int columns = width_ - 20;
    const Levels levels = MeasureLevels(device.lifetimes, device.reserved, static_cast<size_t>(columns));
    std::vector<double> values(levels.high.begin(), levels.high.end());
    Line(fmt::format("  {:<10} {}", Say("live", "在用"), Sparkline(values, columns, terminal_)));
  }

  void Shares(const char* title, const std::vector<Share>& shares, uint64_t total, bool with_function) {
    Line(terminal_.Dim(std::string("  ") + title));
    uint64_t rest = 0;
    size_t rest_rows = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      const Share& share = shares[i];
      if (i >= options_.rows) {
        rest += share.bytes;
        ++rest_rows;
        continue;
      }
      const double percent =
          total ? 100.0 * static_cast<double>(share.bytes) / static_cast<double>(total) : 0;
      std::string line =
          fmt::format("  {:>10} {:>5.1f} %  {}", Bytes(share.bytes), percent, places_.Label(share.label));
      if (with_function && !share.detail.empty()) line += " <- " + share.detail;
      if (with_function)
        line += fmt::format("  [{}, {}x]", snapshot::CategoryName(share.category), FormatCount(share.blocks));
      Line(CutTo(line, width_));
    }
    if (rest_rows)
      Line(fmt::format("  {:>10} {:>5.1f} %  {} smaller rows", Bytes(rest),
                       total ? 100.0 * static_cast<double>(rest) / static_cast<double>(total) : 0,
                       rest_rows));
  }

  void Peak(const DeviceReport& device) {
    std::string when = device.lifetimes.peak_event >= 0
                           ? fmt::format("{} {}", Say("after event", "事件"),
                                         FormatCount(static_cast<uint64_t>(device.lifetimes.peak_event)))
                       : device.events > 1 ? std::string(Say("when the trace begins", "记录开始时"))
                                           : std::string(Say("when the snapshot was taken", "快照时刻"));
    Line("");
    Line(terminal_.Bold(fmt::format("  {} {}", Say("Peak", "峰值"), Bytes(device.peak.bytes))) +
         fmt::format("  {} ({})", when, Say("requested bytes", "请求字节")));
    Shares(Say("by category", "按类别"), device.peak.by_category, device.peak.bytes, false);
    Shares(Say("by line of code", "按代码行"), device.peak.by_line, device.peak.bytes, false);
    Shares(Say("by stack", "按调用栈"), device.peak.by_stack, device.peak.bytes, true);
  }

  void Oom(const Explanation& file, const snapshot::OomReport& oom) {
    Line("");
    Line(terminal_.Red(fmt::format("  {} ({})", Say("Out of memory", "显存不足"), oom.cause)) +
         fmt::format("  {} {}{}", Say("event", "事件"), FormatCount(oom.event),
                     oom.stack ? "  at " + places_.Label(file.sites->Of(oom.stack).label) : ""));
    Paragraph(oom.explanation, "    ");
    for (const auto& group : oom.free_groups) {
      Line(fmt::format("    {:>10} free {} ({} blocks, largest {})", Bytes(group.bytes), group.why,
                       group.blocks, Bytes(group.largest)));
    }
    Shares(Say("held at that moment, by line", "当时持有者, 按行"), oom.holders.by_line, oom.holders.bytes,
           false);
    if (oom.remedies) Search(*oom.remedies);
  }

  void Growth(const DeviceReport& device) {
    const auto& growth = device.growth;
    if (device.events < 8) return;
    Line("");
    const std::string name = growth.verdict == "leak"      ? terminal_.Red("leak")
                             : growth.verdict == "healthy" ? terminal_.Green("healthy")
                                                           : growth.verdict;
    Line(terminal_.Bold(std::string("  ") + Say("Growth", "增长")) + "  " + name);
    Paragraph(growth.reason, "    ");
    for (size_t i = 0; i < growth.stacks.size() && i < options_.rows; ++i) {
      const auto& row = growth.stacks[i];
      Line(
          CutTo(fmt::format("    {:>14}  {:<7}  {} in {} blocks  {}", FormatRate(row.bytes_per_step),
                            row.verdict, Bytes(row.bytes), FormatCount(row.blocks), places_.Label(row.label)),
                width_));
    }
  }

  void Cut(const DeviceReport& device) {
    const auto& cut = device.fragmentation;
    if (!cut.reserved) return;
    Line("");
    Line(terminal_.Bold(fmt::format("  {}", Say("Reserved but free", "保留但空闲"))) +
         fmt::format("  {}", Bytes(cut.releasable + cut.pinned_free)));
    Line(fmt::format("  {:>10}  {}", Bytes(cut.releasable),
                     Say("whole segments: empty_cache() returns them", "整段空闲: empty_cache() 可归还")));
    Line(fmt::format("  {:>10}  {}", Bytes(cut.pinned_free),
                     Say("between blocks in use: pinned", "夹在使用中的块之间: 无法归还")));
    Line(fmt::format("  {:>10}  {}", Bytes(cut.rounding),
                     Say("lost to rounding, in blocks in use", "使用中块的取整损失")));
    if (cut.pending)
      Line(fmt::format("  {:>10}  {}", Bytes(cut.pending),
                       Say("freed, waiting for another stream", "已释放, 等待其他流")));
    if (cut.by_stream.size() > 1) Parts(cut.by_stream);
    if (cut.by_pool.size() > 1) Parts(cut.by_pool);
  }

  void Parts(const std::vector<snapshot::Fragmentation::Part>& parts) {
    for (const auto& part : parts) {
      Line(terminal_.Dim(fmt::format("              {:<34} reserved {:>9}  free {:>9}  largest {:>9}",
                                     part.name, Bytes(part.reserved), Bytes(part.free),
                                     Bytes(part.largest_free))));
    }
  }

  void OutcomeRow(const WhatIf& outcome) {
    const bool died = outcome.died_at_event >= 0 || outcome.died_request > 0;
    const std::string fate =
        died ? terminal_.Red(outcome.died_at_event >= 0
                                 ? fmt::format("out of memory at event {}",
                                               FormatCount(static_cast<uint64_t>(outcome.died_at_event)))
                                 : std::string("does not fit at the start"))
             : terminal_.Green("lives");
    Line(fmt::format("    {} {:>10}  {:>7} segs  {:>4} retries  {}", FitLeft(outcome.settings, 52),
                     Bytes(outcome.stats.peak_reserved), FormatCount(outcome.stats.peak_segments),
                     outcome.stats.retries, fate));
  }

  void Search(const snapshot::Recommendation& search) {
    Line(terminal_.Dim(fmt::format("    {}{}", Say("replayed with other settings", "换用其他设置重放"),
                                   search.capacity == AllocatorConfig::kUnlimited
                                       ? ""
                                       : fmt::format(", room {}", Bytes(search.capacity)))));
    OutcomeRow(search.recorded);
    for (size_t i = 0; i < search.outcomes.size() && i < 6; ++i) OutcomeRow(search.outcomes[i]);
    Paragraph("limits: " + search.limits, "    ");
  }

  void Replay(const DeviceReport& device) {
    if (!device.check) return;
    const auto& check = *device.check;
    Line("");
    Line(terminal_.Bold(std::string("  ") + Say("Replay", "重放")) +
         fmt::format(
             "  {} of {} block addresses and {} of {} requests to the driver of the recorded run predicted",
             FormatCount(check.addresses_right), FormatCount(check.allocs),
             FormatCount(check.segments_right + check.maps_right), FormatCount(check.segments + check.maps)));
    if (check.allocs &&
        static_cast<double>(check.addresses_right) < 0.997 * static_cast<double>(check.allocs)) {
      Line(terminal_.Yellow(
          "    the recorded run is not reproduced well, so figures for other settings are rough"));
    }
    Line(terminal_.Dim("    settings                                             peak reserved"));
    if (device.recorded) OutcomeRow(*device.recorded);
    if (device.what_if) OutcomeRow(*device.what_if);
    if (device.search) Search(*device.search);
  }

  const SnapshotView& view_;
  const Terminal& terminal_;
  const SnapshotOptions& options_;
  SnapshotPlaces places_;
  bool zh_;
  int width_;
  std::string out_;
};

}  // namespace

std::string SnapshotToText(const SnapshotView& view, const Terminal& terminal,
                           const SnapshotOptions& options) {
  return Writer(view, terminal, options).Write();
}

}  // namespace lowtide::report
