#include "snapshot/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "base/units.h"

namespace lowtide::snapshot {
namespace {

using Table = std::map<std::string, Change>;

// What a stack looks like to its user: the user's and library's Python frames, without C++.
std::string StackKey(const Explanation& file, const Share& share) {
  if (!share.stack) return share.label;
  const auto& names = file.snapshot->names;
  std::string key;
  for (uint32_t id : names.stack(share.stack)) {
    const Frame& frame = names.frame(id);
    if (!IsPythonFile(names.text(frame.file))) continue;
    key += fmt::format("{}:{}:{};", ShortPath(names.text(frame.file)), frame.line, names.text(frame.name));
  }
  return key.empty() ? share.label : key;
}

void Add(Table& table, const std::string& key, const Share& share, bool after) {
  Change& change = table[key];
  if (change.label.empty()) {
    change.label = share.label;
    change.file = share.file;
    change.line = share.line;
  }
  (after ? change.after : change.before) += share.bytes;
}

uint64_t Size(const Change& change) {
  return change.after > change.before ? change.after - change.before : change.before - change.after;
}

std::vector<Change> Rows(const Table& table) {
  std::vector<Change> rows;
  for (const auto& [key, change] : table) rows.push_back(change);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Change& a, const Change& b) { return Size(a) > Size(b); });
  return rows;
}

const DeviceReport* Find(const Explanation& file, int device) {
  for (const auto& report : file.devices) {
    if (report.device == device) return &report;
  }
  return nullptr;
}

void AddFile(Explanation& file, const DeviceReport& report, bool after, DeviceDiff& diff, Table tables[4]) {
  (after ? diff.peak_after : diff.peak_before) = report.peak.bytes;
  (after ? diff.reserved_after : diff.reserved_before) = report.reserved;
  const auto end = static_cast<int64_t>(report.events) - 1;
  const Holders held = SumHolders(report.lifetimes.AliveAfter(end), report.lifetimes, *file.sites);
  (after ? diff.held_after : diff.held_before) = held.bytes;
  auto by_line = [](const Share& share) {
    return share.line ? fmt::format("{}:{}", ShortPath(share.file), share.line) : share.label;
  };
  for (const Share& share : report.peak.by_stack) Add(tables[0], StackKey(file, share), share, after);
  for (const Share& share : report.peak.by_line) Add(tables[1], by_line(share), share, after);
  for (const Share& share : held.by_stack) Add(tables[2], StackKey(file, share), share, after);
  for (const Share& share : held.by_line) Add(tables[3], by_line(share), share, after);
}

}  // namespace

std::vector<DeviceDiff> Compare(Explanation& before, Explanation& after) {
  std::set<int> devices;
  for (const auto& report : before.devices) devices.insert(report.device);
  for (const auto& report : after.devices) devices.insert(report.device);
  std::vector<DeviceDiff> diffs;
  for (int device : devices) {
    DeviceDiff diff;
    diff.device = device;
    Table tables[4];
    if (const DeviceReport* report = Find(before, device)) AddFile(before, *report, false, diff, tables);
    if (const DeviceReport* report = Find(after, device)) AddFile(after, *report, true, diff, tables);
    diff.by_stack = Rows(tables[0]);
    diff.by_line = Rows(tables[1]);
    diff.held_by_stack = Rows(tables[2]);
    diff.held_by_line = Rows(tables[3]);
    diffs.push_back(std::move(diff));
  }
  return diffs;
}

int RankOfFile(const std::string& path, int fallback) {
  const size_t slash = path.find_last_of('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  std::smatch match;
  for (const char* pattern : {"rank[-_]?([0-9]{1,6})", "^([0-9]{6})_step", "[-_]([0-9]{1,6})\\.[a-z.]+$"}) {
    if (std::regex_search(name, match, std::regex(pattern))) return std::stoi(match[1]);
  }
  return fallback;
}

Ranks JoinRanks(const std::vector<Explanation>& files) {
  Ranks ranks;
  for (const Explanation& file : files) {
    for (const DeviceReport& device : file.devices) {
      RankRow row;
      row.rank = file.rank;
      row.file = file.snapshot->file;
      row.device = device.device;
      row.peak = device.peak.bytes;
      row.reserved = device.reserved;
      row.allocated = device.allocated;
      row.died = !device.ooms.empty();
      if (row.died) row.first_oom_us = device.ooms.front().time_us.value_or(0);
      row.growth = device.growth.verdict;
      ranks.rows.push_back(row);
    }
  }
  std::stable_sort(ranks.rows.begin(), ranks.rows.end(), [](const RankRow& a, const RankRow& b) {
    return std::pair(a.rank, a.device) < std::pair(b.rank, b.device);
  });
  std::vector<uint64_t> peaks;
  for (size_t i = 0; i < ranks.rows.size(); ++i) {
    const RankRow& row = ranks.rows[i];
    peaks.push_back(row.peak);
    if (ranks.highest < 0 || row.peak > ranks.rows[static_cast<size_t>(ranks.highest)].peak)
      ranks.highest = static_cast<int>(i);
    if (!row.died) continue;
    const int64_t best =
        ranks.first_dead < 0 ? 0 : ranks.rows[static_cast<size_t>(ranks.first_dead)].first_oom_us;
    if (ranks.first_dead < 0 || (row.first_oom_us && row.first_oom_us < best))
      ranks.first_dead = static_cast<int>(i);
  }
  if (peaks.empty()) return ranks;
  std::sort(peaks.begin(), peaks.end());
  ranks.median_peak = peaks[(peaks.size() - 1) / 2];
  if (ranks.median_peak)
    ranks.imbalance = static_cast<double>(peaks.back()) / static_cast<double>(ranks.median_peak) - 1;
  return ranks;
}

std::vector<finding::Finding> FindRankProblems(const Ranks& ranks) {
  std::vector<finding::Finding> findings;
  if (ranks.rows.size() < 2 || ranks.imbalance < 0.1) return findings;
  const RankRow& high = ranks.rows[static_cast<size_t>(ranks.highest)];
  finding::Finding finding;
  finding.code = "LT311";
  finding.severity = finding::Severity::kWarning;
  finding.message = fmt::format("rank {} (cuda:{}) peaks at {}, {:.0f} % above the median rank ({})",
                                high.rank, high.device, FormatBytes(static_cast<double>(high.peak)),
                                100 * ranks.imbalance, FormatBytes(static_cast<double>(ranks.median_peak)));
  finding.message_zh = fmt::format("rank {}(cuda:{})峰值 {},比中位 rank 高 {:.0f} %", high.rank, high.device,
                                   FormatBytes(static_cast<double>(high.peak)), 100 * ranks.imbalance);
  finding.evidence = {{"imbalance", ranks.imbalance, ""},
                      {"median_peak", static_cast<double>(ranks.median_peak), "B"}};
  finding.help =
      "The job dies with its fullest rank: compare that rank with another (`--diff`), and look for uneven "
      "batches, pipeline stages, or work done on rank 0 only.";
  finding.fingerprint =
      finding::Fingerprint("LT311", {std::to_string(high.rank), std::to_string(high.device)});
  findings.push_back(finding);
  return findings;
}

}  // namespace lowtide::snapshot
