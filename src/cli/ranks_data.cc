// What the ranks read, compared: the same rows, overlapping shares, samplers that disagree, uneven numbers of batches.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/units.h"
#include "cli/ranks_compare.h"

namespace lowtide::cli {
namespace {

using finding::Finding;
using nlohmann::json;

constexpr size_t kProof = 3;           // batches that must be equal, rows that must overlap
constexpr size_t kMostEpochs = 24;     // as many are written down
constexpr double kExpected = 5;        // overlapping rows that independent draws would have shown

using Rows = std::vector<uint32_t>;
using Key = std::pair<uint64_t, int>;  // step, number of the look within it

Rows RowsOf(const json& look) {
  Rows rows;
  auto at = look.find("rows");
  if (at == look.end() || !at->is_array()) return rows;
  for (const json& row : *at) {
    if (row.is_number()) rows.push_back(static_cast<uint32_t>(row.get<double>()));
  }
  return rows;
}

std::map<Key, Rows> LooksOf(const RankFacts& facts) {
  std::map<Key, Rows> looks;
  std::map<uint64_t, int> within;
  for (const json& look : facts.Of("data")) {
    auto step = static_cast<uint64_t>(NumberOf(look, "step"));
    looks[{step, within[step]++}] = RowsOf(look);
  }
  return looks;
}

// Of two ranks: batches compared, batches that were the same, different batches among these.
struct Same {
  size_t compared = 0, equal = 0, different = 0;
  bool proven() const { return equal >= kProof && different >= 2 && 10 * equal >= 9 * compared; }
};

Same CompareLooks(const std::map<Key, Rows>& a, const std::map<Key, Rows>& b) {
  Same same;
  std::set<Rows> kinds;
  for (const auto& [key, rows] : a) {
    auto other = b.find(key);
    if (other == b.end() || rows.empty() || other->second.empty()) continue;
    ++same.compared;
    if (rows != other->second) continue;
    ++same.equal;
    kinds.insert(rows);
  }
  same.different = kinds.size();
  return same;
}

bool Wrapped(const Ranks& ranks) {
  return std::all_of(ranks.facts.begin(), ranks.facts.end(), [](const auto& item) { return !item.second.Of("wrap").empty(); });
}

// Without a wrapper: copies that stay equal are data parallel too.
bool CopiesStayEqual(const Ranks& ranks) {
  const RankFacts& first = ranks.facts.begin()->second;
  for (const auto& [rank, facts] : ranks.facts) {
    const auto &mine = first.Of("parameters"), &theirs = facts.Of("parameters");
    if (mine.size() < 3 || theirs.size() < 3) return false;
    for (size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
      if (mine[i].value("items", json()) != theirs[i].value("items", json())) return false;
    }
  }
  return true;
}

void PlaceOfLoader(const RankFacts& facts, Finding& finding) {
  const json& loader = facts.Last("loader");
  if (std::string file = TextOf(loader, "file"); !file.empty()) {
    finding.where.push_back({file, static_cast<int>(NumberOf(loader, "line")), 0, "loader.sampler", {}, {}});
  }
}

// Which epoch a step belongs to, 0 when it is not known.
size_t EpochOf(const RankFacts& facts, uint64_t step) {
  size_t epoch = 0;
  for (const json& loader : facts.Of("loader")) {
    if (static_cast<uint64_t>(NumberOf(loader, "step")) <= step) ++epoch;
  }
  return epoch >= kMostEpochs ? 0 : epoch;
}

struct Overlap {
  size_t rows = 0;        // seen on both ranks in the same epoch
  double expected = 0;    // if both drew from the whole data set
  size_t repeated = 0;    // rows that one rank alone saw twice in an epoch
  size_t seen = 0;        // rows compared, of the rank that saw fewer
};

Overlap OverlapOf(const RankFacts& a, const RankFacts& b, double samples) {
  std::map<size_t, std::set<uint32_t>> mine, theirs;
  Overlap out;
  auto collect = [&](const RankFacts& facts, auto& into) {
    for (const auto& [key, rows] : LooksOf(facts)) {
      size_t epoch = EpochOf(facts, key.first);
      for (uint32_t row : rows) out.repeated += epoch && !into[epoch].insert(row).second;
    }
  };
  collect(a, mine);
  collect(b, theirs);
  for (const auto& [epoch, rows] : mine) {
    auto other = theirs.find(epoch);
    if (other == theirs.end()) continue;
    for (uint32_t row : rows) out.rows += other->second.count(row);
    out.seen += std::min(rows.size(), other->second.size());
    if (samples > 0) out.expected += static_cast<double>(rows.size()) * static_cast<double>(other->second.size()) / samples;
  }
  return out;
}

Finding SameData(const std::vector<int>& group, const Same& same, const RankFacts& facts) {
  const json& loader = facts.Last("loader");
  std::string sampler = TextOf(loader, "sampler");
  std::string why = sampler.empty()              ? "each rank makes the same batches (the same seed on every rank)"
                    : FlagOf(loader, "distributed") ? "the DistributedSampler was given the same rank on each of them"
                                                    : fmt::format("the loader has a {} and no DistributedSampler", sampler);
  Finding out = RankFinding(
      "LT602",
      fmt::format("{} read the same data: {} of {} batches compared were equal, row for row; {}. The run does the work of one "
                  "rank {} times", RankList(group), same.equal, same.compared, why, group.size()),
      fmt::format("{} 读取相同的数据：比较的 {} 个批次中有 {} 个完全相同", RankListZh(group), same.compared, same.equal),
      "give each rank its share: DataLoader(..., sampler=DistributedSampler(dataset)) with set_epoch(epoch) each epoch; for data "
      "made on the fly seed each rank by its own number",
      "为每个 rank 分配不同的数据：使用 DistributedSampler 并在每个 epoch 调用 set_epoch；现场生成数据时按 rank 设置不同种子",
      "same");
  out.evidence = {{"batches_equal", static_cast<double>(same.equal), ""}, {"batches_compared", static_cast<double>(same.compared), ""}};
  PlaceOfLoader(facts, out);
  return out;
}

// Ranks that draw from the whole data set, each for itself.
void AddOverlap(const Ranks& ranks, finding::Document& document) {
  const RankFacts &first = ranks.facts.begin()->second, &second = std::next(ranks.facts.begin())->second;
  const json &mine = first.Last("loader"), &theirs = second.Last("loader");
  double samples = NumberOf(mine, "samples");
  if (mine.empty() || theirs.empty() || FlagOf(mine, "distributed") || samples <= 0) return;
  if (samples != NumberOf(theirs, "samples") || NumberOf(mine, "drawn") < samples) return;
  Overlap overlap = OverlapOf(first, second, samples);
  bool proven = overlap.rows >= kProof && 4 * overlap.repeated < overlap.rows &&
                static_cast<double>(overlap.rows) > 0.3 * overlap.expected;
  bool open = overlap.expected > 0 && overlap.expected < kExpected && overlap.rows < kProof;
  if (!proven && !open) return;
  std::string sampler = TextOf(mine, "sampler");
  std::string shown = FormatCount(static_cast<uint64_t>(samples));
  std::string proof = proven ? fmt::format("{} of {} rows looked at came on two ranks in the same epoch", overlap.rows, overlap.seen)
                             : "their rows could not be compared far enough to prove an overlap";
  Finding out = RankFinding(
      "LT604",
      fmt::format("no DistributedSampler: each of {} ranks draws all {} samples by a {}, so an epoch reads every sample {} times ({})",
                  ranks.facts.size(), shown, sampler, ranks.facts.size(), proof),
      fmt::format("没有 DistributedSampler：{} 个 rank 各自读取全部 {} 个样本，每个 epoch 每个样本被读取 {} 次",
                  ranks.facts.size(), shown, ranks.facts.size()),
      "DataLoader(dataset, sampler=DistributedSampler(dataset), ...) and sampler.set_epoch(epoch) each epoch (shuffle stays off in the "
      "loader); nothing to do if the dataset object holds another share on each rank",
      "使用 DataLoader(dataset, sampler=DistributedSampler(dataset), ...) 并在每个 epoch 调用 set_epoch；若数据集本身已按 rank 划分则无需处理",
      "overlap");
  if (!proven) out.severity = finding::Severity::kNote;
  out.evidence = {{"rows_on_two_ranks", static_cast<double>(overlap.rows), ""}, {"rows_seen", static_cast<double>(overlap.seen), ""}};
  PlaceOfLoader(first, out);
  document.findings.push_back(std::move(out));
}

}  // namespace

void CompareRows(const Ranks& ranks, finding::Document& document) {
  if (ranks.facts.size() < 2 || (!Wrapped(ranks) && !CopiesStayEqual(ranks))) return;
  std::map<int, std::map<Key, Rows>> looks;
  for (const auto& [rank, facts] : ranks.facts) looks[rank] = LooksOf(facts);
  std::set<int> grouped;
  bool same_data = false;
  for (const auto& [rank, mine] : looks) {
    if (grouped.count(rank)) continue;
    std::vector<int> group = {rank};
    Same weakest;
    for (const auto& [other, theirs] : looks) {
      if (other <= rank || grouped.count(other)) continue;
      Same same = CompareLooks(mine, theirs);
      if (!same.proven()) continue;
      if (group.size() == 1 || same.equal < weakest.equal) weakest = same;
      group.push_back(other);
    }
    if (group.size() < 2) continue;
    grouped.insert(group.begin(), group.end());
    document.findings.push_back(SameData(group, weakest, ranks.facts.at(rank)));
    same_data = true;
  }
  if (!same_data) AddOverlap(ranks, document);
}

void CompareSamplers(const Ranks& ranks, finding::Document& document) {
  struct Setting {
    const char *key, *name;
  };
  constexpr Setting kSettings[] = {{"distributed", "kind of sampler"}, {"shuffle", "shuffle"},       {"seed", "seed"},
                                   {"sampler_epoch", "epoch (set_epoch)"}, {"replicas", "num_replicas"}, {"samples", "length of the dataset"},
                                   {"batch_size", "batch_size"}};
  if (!Wrapped(ranks) || ranks.facts.empty()) return;
  std::vector<std::string> differences;
  const RankFacts& first = ranks.facts.begin()->second;
  std::map<double, std::vector<int>> shares;
  double replicas = 0;
  for (const auto& [rank, facts] : ranks.facts) {
    const auto &mine = first.Of("loader"), &theirs = facts.Of("loader");
    if (theirs.empty() || mine.empty()) return;
    bool distributed = FlagOf(mine.front(), "distributed") || FlagOf(theirs.front(), "distributed");
    for (const Setting& setting : kSettings) {
      if (!distributed) break;
      for (size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
        auto a = mine[i].find(setting.key), b = theirs[i].find(setting.key);
        if (a == mine[i].end() || b == theirs[i].end() || *a == *b) continue;
        std::string text = fmt::format("{} is {} on rank {} and {} on rank {}", setting.name, a->dump(), first.rank, b->dump(), rank);
        bool told = std::any_of(differences.begin(), differences.end(), [&](const auto& other) { return other.rfind(setting.name, 0) == 0; });
        if (!told) differences.push_back(text);
        break;
      }
    }
    if (FlagOf(theirs.front(), "distributed")) {
      shares[NumberOf(theirs.front(), "share", -1)].push_back(rank);
      replicas = NumberOf(theirs.front(), "replicas");
    }
  }
  for (const auto& [share, of] : shares) {
    if (of.size() > 1) differences.push_back(fmt::format("{} all have share {} (rank={})", RankList(of), share, share));
  }
  if (replicas > 0 && replicas < first.world) differences.push_back(fmt::format("num_replicas is {} with {} ranks", replicas, first.world));
  if (differences.empty()) return;
  std::string text;
  for (const std::string& difference : differences) text += (text.empty() ? "" : "; ") + difference;
  Finding out = RankFinding(
      "LT603", fmt::format("the ranks' samplers disagree: {}; their shares overlap, or samples are left out", text),
      fmt::format("各 rank 的采样器设置不一致：{}；数据划分会重叠或遗漏", text),
      "DistributedSampler(dataset) takes rank and num_replicas from the process group; give every rank the same seed, shuffle and "
      "set_epoch(epoch)",
      "DistributedSampler(dataset) 会从进程组获取 rank 和 num_replicas；所有 rank 的 seed、shuffle 与 set_epoch 必须一致", "samplers");
  PlaceOfLoader(first, out);
  document.findings.push_back(std::move(out));
}

void CompareBatches(const Ranks& ranks, finding::Document& document) {
  if (!Wrapped(ranks) || ranks.facts.size() < 2) return;
  std::map<int, double> batches;
  std::map<int, double> ended;
  std::string error;
  for (const auto& [rank, facts] : ranks.facts) {
    if (FlagOf(facts.Last("end"), "joined")) return;  // Join waits for the longest rank
    const json& loader = facts.Last("loader");
    if (double count = NumberOf(loader, "batches", -1); count >= 0) batches[rank] = count;
    const json& end = facts.Last("end");
    if (!end.empty()) ended[rank] = NumberOf(end, "step");
    if (std::string said = TextOf(end, "error"); !said.empty()) error = fmt::format(" Rank {} ended with {}", rank, said.substr(0, 120));
  }
  auto uneven = [](const std::map<int, double>& counts) {
    auto [least, most] = std::minmax_element(counts.begin(), counts.end(), [](auto& a, auto& b) { return a.second < b.second; });
    return std::pair(*least, *most);
  };
  bool by_length = batches.size() == ranks.facts.size() && uneven(batches).first.second != uneven(batches).second.second;
  bool iterable = FlagOf(ranks.facts.begin()->second.Last("loader"), "iterable");
  bool by_steps = !by_length && iterable && ended.size() == ranks.facts.size() && uneven(ended).first.second != uneven(ended).second.second;
  if (!by_length && !by_steps) return;
  auto [least, most] = uneven(by_length ? batches : ended);
  const char* what = by_length ? "batches an epoch" : "steps in all";
  Finding out = RankFinding(
      "LT605",
      fmt::format("uneven data: rank {} has {} {}, rank {} has {}; once the shorter rank is through, the others wait for it in "
                  "all-reduce.{}", least.first, least.second, what, most.first, most.second, error),
      fmt::format("各 rank 的批次数不同：rank {} 有 {}，rank {} 有 {}；较短的 rank 结束后其他 rank 会一直等待", least.first, least.second,
                  most.first, most.second),
      "make the shares equal (DistributedSampler pads or, with drop_last=True, cuts), stop all ranks after the least number of batches, or "
      "train inside `with Join([model]):`",
      "使各 rank 的数据量相同（DistributedSampler，或 drop_last=True），按最少的批次数停止，或使用 `with Join([model]):`", "uneven");
  out.evidence = {{"fewest", least.second, ""}, {"most", most.second, ""}};
  PlaceOfLoader(ranks.facts.begin()->second, out);
  document.findings.push_back(std::move(out));
}

}  // namespace lowtide::cli
