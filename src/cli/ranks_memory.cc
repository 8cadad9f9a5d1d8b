// Memory across ranks: who needs far more than the others, and who dies first; where a leak on some ranks is decided.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "base/units.h"
#include "cli/ranks_compare.h"

namespace lowtide::cli {
namespace {

constexpr double kBand = 1.25;         // peak over the middle rank's
constexpr double kLeastBytes = 64e6;   // of difference

double Middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

std::string LeftOf(const finding::VerdictRow& row) { return FormatCount(static_cast<uint64_t>(std::max(0.0, *row.steps_to_oom))); }

// Of several ranks that leak: which one ends the job, and when.
void AddFirstToDie(finding::Document& document) {
  std::map<std::string, std::vector<const finding::VerdictRow*>> pools;
  for (const auto& row : document.verdicts) {
    if (row.verdict == "leak" && row.steps_to_oom && row.explained_by.empty()) pools[row.pool.substr(0, row.pool.find(':'))].push_back(&row);
  }
  for (auto& [pool, rows] : pools) {
    if (rows.size() < 2) continue;
    std::sort(rows.begin(), rows.end(), [](auto* a, auto* b) { return *a->steps_to_oom < *b->steps_to_oom; });
    if (*rows.front()->steps_to_oom > 0.8 * *rows.back()->steps_to_oom) continue;
    finding::Finding out = RankFinding(
        "LT618",
        fmt::format("the ranks' memory ({}) drifts apart: rank {} runs out first, in about {} steps, and the whole job with it; rank {} last, in about {}",
                    pool, rows.front()->rank, LeftOf(*rows.front()), rows.back()->rank, LeftOf(*rows.back())),
        fmt::format("各 rank 的内存（{}）增长不一致：rank {} 最先耗尽，约 {} 步后", pool, rows.front()->rank, LeftOf(*rows.front())),
        "cure the leak on that rank first; look at what it does that the others do not", "先处理该 rank 的泄漏，检查它与其他 rank 的不同之处", "drift " + pool);
    document.findings.push_back(std::move(out));
  }
}

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool HasWord(const std::string& text, const std::string& word) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    bool begins = at == 0 || !IsWord(text[at - 1]);
    if (begins && (at + word.size() == text.size() || !IsWord(text[at + word.size()]))) return true;
  }
  return false;
}

bool IsRankBranch(const std::string& line) {
  size_t at = line.find_first_not_of(" \t");
  if (at == std::string::npos || (line.compare(at, 3, "if ") != 0 && line.compare(at, 5, "elif ") != 0)) return false;
  for (const char* word : {"rank", "local_rank", "global_rank", "RANK", "LOCAL_RANK", "get_rank", "is_main_process", "is_master", "is_main",
                           "is_rank_zero", "is_global_zero", "is_local_main_process", "main_process", "master"}) {
    if (HasWord(line, word)) return true;
  }
  return false;
}

// "results.items[*]" -> {"items", "results"}: the variables that the path goes through.
std::vector<std::string> NamesOf(const std::string& path) {
  std::vector<std::string> names;
  std::string name;
  for (char c : path + ".") {
    if (IsWord(c)) {
      name += c;
      continue;
    }
    if (!name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) && name != "self") names.push_back(name);
    name.clear();
  }
  return names;
}

// The first `if` on the rank whose block touches one of `names`; 0 without one.
int BranchOf(const std::string& file, const std::vector<std::string>& names) {
  std::ifstream source(file);
  std::vector<std::string> lines;
  for (std::string line; lines.size() < 20'000 && std::getline(source, line);) lines.push_back(line);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!IsRankBranch(lines[i])) continue;
    size_t indent = lines[i].find_first_not_of(" \t");
    for (size_t j = i; j < lines.size(); ++j) {
      size_t inner = lines[j].find_first_not_of(" \t");
      if (j > i && inner != std::string::npos && inner <= indent) break;
      if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return HasWord(lines[j], name); })) return static_cast<int>(i) + 1;
    }
  }
  return 0;
}

}  // namespace

void CompareMemory(const Ranks& ranks, finding::Document& document) {
  AddFirstToDie(document);
  std::map<std::string, std::map<int, double>> peaks;
  for (const RankTrack& track : ranks.tracks) {
    for (const auto& [pool, bytes] : track.peak) peaks[pool][track.rank] = bytes;
  }
  for (const auto& [pool, of] : peaks) {
    if (of.size() < 2) continue;
    std::vector<double> values;
    for (const auto& [rank, bytes] : of) values.push_back(bytes);
    double middle = Middle(values);
    auto most = std::max_element(of.begin(), of.end(), [](auto& a, auto& b) { return a.second < b.second; });
    if (most->second < kBand * middle || most->second - middle < kLeastBytes) continue;
    bool leaks = std::any_of(document.verdicts.begin(), document.verdicts.end(), [&](const auto& row) {
      return row.rank == most->first && row.verdict == "leak" && row.pool.substr(0, row.pool.find(':')) == pool;
    });
    if (leaks) continue;  // LT208 says it better
    std::string floor;
    for (const RankTrack& track : ranks.tracks) {
      auto at = track.floor.find(pool);
      if (track.rank == most->first && at != track.floor.end()) floor = fmt::format(" (its floor is {})", FormatBytes(at->second));
    }
    finding::Finding out = RankFinding(
        "LT618",
        fmt::format("uneven memory: the peak of rank {} in {} is {}{}, {:.0f} % above the middle rank's {}; this rank runs out first", most->first, pool,
                    FormatBytes(most->second), floor, 100 * (most->second / middle - 1), FormatBytes(middle)),
        fmt::format("内存不均衡：rank {} 的峰值为 {}，比中间值 {} 高 {:.0f} %", most->first, FormatBytes(most->second), FormatBytes(middle),
                    100 * (most->second / middle - 1)),
        "look for work under `if rank == ...`, checkpoints loaded without map_location onto one device, longer samples on this rank, everything gathered to it",
        "检查 `if rank == ...` 下的额外工作、加载检查点时缺少 map_location、该 rank 的样本更长或数据都汇集到该 rank", "uneven " + pool);
    out.evidence = {{"peak", most->second, "B"}, {"middle_peak", middle, "B"}};
    document.findings.push_back(std::move(out));
  }
}

void PlaceRankBranches(finding::Document& document) {
  for (finding::Finding& finding : document.findings) {
    if (finding.code != "LT208" || finding.where.empty() || finding.where[0].file.empty()) continue;
    const finding::Where holder = finding.where[0];
    std::vector<std::string> names = NamesOf(holder.object_path);
    std::reverse(names.begin(), names.end());
    int line = BranchOf(holder.file, names);
    if (line > 0) finding.where.push_back({holder.file, line, 0, "branch on the rank", {}, {}});
  }
}

}  // namespace lowtide::cli
