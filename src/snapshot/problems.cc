// What an explained snapshot is worth telling: LT3xx.
#include <fmt/core.h>

#include <algorithm>

#include "base/units.h"
#include "snapshot/explain.h"

namespace lowtide::snapshot {
namespace {

using finding::Finding;
using finding::Severity;

constexpr uint64_t kBigEnough = uint64_t{512} << 20;  // bytes of waste that are worth a line

std::string Bytes(uint64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

Finding Make(const char* code, Severity severity, const Explanation& explanation,
             const DeviceReport& device) {
  Finding finding;
  finding.code = code;
  finding.severity = severity;
  finding.fingerprint =
      finding::Fingerprint(code, {explanation.snapshot->file, std::to_string(device.device)});
  return finding;
}

void PointAt(Finding& finding, const std::string& file, int line) {
  if (file.empty()) return;
  finding::Where where;
  where.file = file;
  where.line = line;
  finding.where.push_back(where);
}

std::string Top(const Holders& holders) {
  std::string text;
  for (size_t i = 0; i < holders.by_line.size() && i < 3; ++i) {
    const Share& share = holders.by_line[i];
    text += fmt::format("{}{} ({})", i ? ", " : "", share.label, Bytes(share.bytes));
  }
  return text;
}

// The remedy that a replay showed to work, or that none did.
std::string Remedy(const OomReport& oom) {
  if (!oom.remedies) return {};
  std::vector<const WhatIf*> served;
  for (const WhatIf& outcome : oom.remedies->outcomes) {
    if (outcome.died_at_event < 0 && outcome.died_request == 0) served.push_back(&outcome);
  }
  if (served.empty()) {
    return fmt::format(
        "Replayed with the same room ({}), none of {} allocator settings would have served it; less memory "
        "must be held.",
        Bytes(oom.remedies->capacity), oom.remedies->outcomes.size());
  }
  return fmt::format(
      "Replayed with the same room ({}), PYTORCH_CUDA_ALLOC_CONF={} would have served every request (peak "
      "reserved {}).",
      Bytes(oom.remedies->capacity), served[0]->settings, Bytes(served[0]->stats.peak_reserved));
}

void AddOoms(const Explanation& explanation, const DeviceReport& device, std::vector<Finding>& out) {
  if (device.ooms.empty()) return;
  const OomReport& oom = device.ooms.front();
  const char* code = oom.cause == "fragmentation" ? "LT302"
                     : oom.cause == "limit"       ? "LT303"
                     : oom.cause == "other"       ? "LT304"
                                                  : "LT301";
  Finding finding = Make(code, Severity::kError, explanation, device);
  const CallSite& site = explanation.sites->Of(oom.stack);
  finding.message = fmt::format(
      "cuda:{} ran out of memory{}{}: {}", device.device, oom.stack ? " at " + site.label : "",
      device.ooms.size() > 1 ? fmt::format(" ({} times)", device.ooms.size()) : "", oom.explanation);
  finding.message_zh =
      fmt::format("cuda:{} 显存不足{}:请求 {},已保留 {},其中在用 {},驱动空闲 {};原因:{}", device.device,
                  oom.stack ? "(" + site.label + ")" : "", Bytes(oom.request), Bytes(oom.reserved),
                  Bytes(oom.allocated), oom.device_free ? Bytes(*oom.device_free) : "未知",
                  oom.cause == "fragmentation" ? "碎片"
                  : oom.cause == "limit"       ? "受限额限制"
                  : oom.cause == "other"       ? "其他进程占用"
                                               : "容量不足");
  PointAt(finding, site.file, site.line);
  finding.evidence = {{"request", static_cast<double>(oom.request), "B"},
                      {"reserved", static_cast<double>(oom.reserved), "B"},
                      {"allocated", static_cast<double>(oom.allocated), "B"},
                      {"free_in_segments", static_cast<double>(oom.free_in_segments), "B"},
                      {"missing", static_cast<double>(oom.missing), "B"}};
  finding.help = fmt::format("Largest holders at that moment: {}. {}", Top(oom.holders), Remedy(oom));
  out.push_back(std::move(finding));
}

void AddGrowth(const Explanation& explanation, const DeviceReport& device, std::vector<Finding>& out) {
  const Growth& growth = device.growth;
  if (growth.verdict != "leak" && growth.verdict != "bounded") return;
  const bool leak = growth.verdict == "leak";
  Finding finding =
      Make(leak ? "LT305" : "LT306", leak ? Severity::kError : Severity::kNote, explanation, device);
  const StackGrowth& first = growth.stacks.front();
  finding.message = fmt::format("cuda:{} {}: {}; most of it ({}) comes from {}", device.device,
                                leak ? "leaks" : "grew and stopped", growth.reason,
                                FormatRate(first.bytes_per_step), first.label);
  finding.message_zh =
      fmt::format("cuda:{} {}:每步 {},主要来自 {}", device.device, leak ? "显存泄漏" : "显存先增长后停止",
                  FormatRate(growth.bytes_per_step), first.label);
  for (const StackGrowth& row : growth.stacks) {
    if (row.verdict == growth.verdict && finding.where.size() < 5) PointAt(finding, row.file, row.line);
  }
  finding.evidence = {{"growth", growth.bytes_per_step, "B/step"},
                      {"steps", static_cast<double>(growth.steps_judged), "steps"},
                      {"confidence", growth.confidence, ""}};
  finding.help =
      leak ? "Look for what keeps the tensors made on that line: a list or dict that is appended to each "
             "step, a loss summed with its graph "
             "(use .item() or .detach()), or hooks that store activations. `lowtide run` names the holder."
           : "Nothing needs to be done if this is a cache or warm-up.";
  finding.fingerprint =
      finding::Fingerprint(finding.code, {first.file, std::to_string(first.line), first.label});
  out.push_back(std::move(finding));
}

void AddFragmentation(const Explanation& explanation, const DeviceReport& device, std::vector<Finding>& out) {
  const Fragmentation& cut = device.fragmentation;
  if (cut.pinned_free >= kBigEnough && cut.pinned_free * 5 >= cut.reserved) {
    Finding finding = Make("LT307", Severity::kWarning, explanation, device);
    finding.message = fmt::format(
        "{} of cuda:{}'s {} reserved is free but pinned between blocks in use, so neither empty_cache() nor "
        "another size can use it",
        Bytes(cut.pinned_free), device.device, Bytes(cut.reserved));
    finding.message_zh = fmt::format("cuda:{} 保留的 {} 中有 {} 空闲但被在用块夹住,empty_cache() 无法归还",
                                     device.device, Bytes(cut.reserved), Bytes(cut.pinned_free));
    finding.evidence = {{"pinned_free", static_cast<double>(cut.pinned_free), "B"},
                        {"largest_free_block", static_cast<double>(cut.largest_free_block), "B"}};
    finding.help =
        "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; `lowtide snapshot FILE --replay best` shows "
        "what it would save in this run.";
    out.push_back(std::move(finding));
  }
  if (cut.pending >= kBigEnough) {
    Finding finding = Make("LT310", Severity::kWarning, explanation, device);
    finding.message = fmt::format(
        "{} on cuda:{} is freed but waits for another stream (record_stream), so it cannot be used yet",
        Bytes(cut.pending), device.device);
    finding.message_zh =
        fmt::format("cuda:{} 上有 {} 已释放但在等待其他流", device.device, Bytes(cut.pending));
    finding.help =
        "Synchronize the side stream sooner, or hold the tensors until it has finished instead of "
        "record_stream().";
    out.push_back(std::move(finding));
  }
}

void AddSearch(const Explanation& explanation, const DeviceReport& device, std::vector<Finding>& out) {
  if (!device.search || device.search->outcomes.empty()) return;
  const WhatIf& best = device.search->outcomes.front();
  const WhatIf& now = device.search->recorded;
  const bool saves_life = now.died_at_event >= 0 && best.died_at_event < 0;
  const uint64_t saved = now.stats.peak_reserved > best.stats.peak_reserved
                             ? now.stats.peak_reserved - best.stats.peak_reserved
                             : 0;
  if (best.died_at_event >= 0 || (!saves_life && saved * 50 < now.stats.peak_reserved)) return;
  Finding finding = Make("LT308", Severity::kNote, explanation, device);
  finding.message = fmt::format(
      "PYTORCH_CUDA_ALLOC_CONF={} would have held cuda:{}'s peak of reserved memory at {} instead of {}{}",
      best.settings, device.device, Bytes(best.stats.peak_reserved), Bytes(now.stats.peak_reserved),
      saves_life ? ", and the run would not have died" : "");
  finding.message_zh =
      fmt::format("若设 PYTORCH_CUDA_ALLOC_CONF={},cuda:{} 的保留峰值为 {} 而非 {}", best.settings,
                  device.device, Bytes(best.stats.peak_reserved), Bytes(now.stats.peak_reserved));
  finding.evidence = {{"saved", static_cast<double>(saved), "B"}};
  finding.help = "Limits of this answer: " + device.search->limits + ".";
  out.push_back(std::move(finding));
}

void AddRecording(const Explanation& explanation, const DeviceReport& device, std::vector<Finding>& out) {
  if (device.lifetimes.ring_wrapped && device.events > 1) {
    uint64_t unknown = 0;
    for (const LiveBlock& block : device.lifetimes.older) {
      if (!block.stack) unknown += block.bytes;
    }
    if (unknown * 10 < device.peak.bytes) return;
    Finding finding = Make("LT309", Severity::kNote, explanation, device);
    finding.message = fmt::format(
        "{} on cuda:{} was allocated before the first recorded event and has no stack; an earlier, higher "
        "peak cannot be seen either",
        Bytes(unknown), device.device);
    finding.message_zh =
        fmt::format("cuda:{} 上有 {} 在首个记录事件之前分配,没有调用栈", device.device, Bytes(unknown));
    finding.evidence = {{"unattributed", static_cast<double>(unknown), "B"}};
    finding.help =
        "Start recording before the model is built, and raise max_entries; `lowtide.snapshot()` does both.";
    out.push_back(std::move(finding));
  }
}

}  // namespace

std::vector<Finding> FindProblems(const Explanation& explanation) {
  std::vector<Finding> findings;
  for (const DeviceReport& device : explanation.devices) {
    AddOoms(explanation, device, findings);
    AddGrowth(explanation, device, findings);
    AddFragmentation(explanation, device, findings);
    AddSearch(explanation, device, findings);
    AddRecording(explanation, device, findings);
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return findings;
}

}  // namespace lowtide::snapshot
