// The ranks' copies of the model, compared: parameters, batch statistics, devices, what is unused, which collectives ran.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/ranks_compare.h"

namespace lowtide::cli {
namespace {

using finding::Finding;
using nlohmann::json;

struct Item {
  uint32_t hash = 0;
  double size = 0;  // sum of magnitudes
};

std::map<std::string, Item> ItemsOf(const json& row, const char* key) {
  std::map<std::string, Item> items;
  auto list = row.find(key);
  if (list == row.end() || !list->is_array()) return items;
  for (const json& item : *list) {
    if (!item.is_array() || item.size() < 3 || !item[0].is_string() || !item[1].is_number() || !item[2].is_number()) continue;
    items[item[0].get<std::string>()] = {static_cast<uint32_t>(item[1].get<double>()), item[2].get<double>()};
  }
  return items;
}

struct Difference {
  size_t looks = 0, differing = 0;   // looks that all ranks took
  bool first_equal = false, last_differs = false;
  uint64_t first_step = 0, last_step = 0;
  std::string name;                  // of what differs most at the last look
  double relative = 0;
  std::set<int> ranks;               // that differ from rank 0's copy
};

// `key`: "items" or "buffers".
Difference DifferenceOf(const Ranks& ranks, const char* key) {
  Difference out;
  std::map<uint64_t, std::map<int, std::map<std::string, Item>>> steps;
  for (const auto& [rank, facts] : ranks.facts) {
    for (const json& row : facts.Of("parameters")) steps[static_cast<uint64_t>(NumberOf(row, "step"))][rank] = ItemsOf(row, key);
  }
  for (const auto& [step, of] : steps) {
    if (of.size() != ranks.facts.size()) continue;
    const auto& first = of.begin()->second;
    std::set<int> other;
    double most = -1;
    std::string name;
    for (const auto& [rank, items] : of) {
      for (const auto& [parameter, item] : items) {
        auto mine = first.find(parameter);
        if (mine == first.end() || mine->second.hash == item.hash) continue;
        other.insert(rank);
        double size = std::max({mine->second.size, item.size, 1e-300});
        double relative = std::abs(mine->second.size - item.size) / size;
        if (relative > most) most = relative, name = parameter;
      }
    }
    if (first.empty()) continue;
    if (++out.looks == 1) out.first_equal = other.empty();
    out.last_differs = !other.empty();
    out.last_step = step;
    if (other.empty()) continue;
    if (++out.differing == 1) out.first_step = step;
    out.name = name, out.relative = most, out.ranks = other;
  }
  return out;
}

std::vector<int> AllRanks(const Ranks& ranks) {
  std::vector<int> all;
  for (const auto& [rank, facts] : ranks.facts) all.push_back(rank);
  return all;
}

bool Wrapped(const Ranks& ranks) {
  return std::all_of(ranks.facts.begin(), ranks.facts.end(), [](const auto& item) { return !item.second.Of("wrap").empty(); });
}

void PlaceOfWrap(const Ranks& ranks, const std::string& path, Finding& finding) {
  const json& wrap = ranks.facts.begin()->second.Last("wrap");
  finding.where.push_back({TextOf(wrap, "file"), static_cast<int>(NumberOf(wrap, "line")), 0, path, {}, {}});
}

double CollectivesPerStep(const Ranks& ranks) {
  const json& last = ranks.facts.begin()->second.Last("parameters");
  return NumberOf(last, "collectives") / std::max(1.0, NumberOf(last, "step"));
}

bool SameShapes(const Ranks& ranks) {
  std::set<double> shapes;
  for (const auto& [rank, facts] : ranks.facts) shapes.insert(NumberOf(facts.Last("parameters"), "shapes", -1));
  return shapes.size() == 1 && *shapes.begin() >= 0;
}

// What each rank was given differs: data parallel, and no shards of one computation.
bool InputsDiffer(const Ranks& ranks) {
  const RankFacts &a = ranks.facts.begin()->second, &b = std::next(ranks.facts.begin())->second;
  for (const json& mine : a.Of("data")) {
    for (const json& theirs : b.Of("data")) {
      if (mine.value("step", json()) == theirs.value("step", json()) && mine.value("rows", json()) != theirs.value("rows", json())) return true;
    }
  }
  return false;
}

void AddApart(const Ranks& ranks, const std::string& how, uint64_t step, finding::Document& document) {
  std::vector<int> all = AllRanks(ranks);
  Finding out = RankFinding(
      "LT619",
      fmt::format("{} train apart: {}; this is {} separate runs, not one", RankList(all), how, all.size()),
      fmt::format("{} 各自独立训练：没有任何梯度同步，相当于 {} 个单独的训练", RankListZh(all), all.size()),
      "wrap the model: DistributedDataParallel(model) after init_process_group, or average the gradients of every parameter in each step; "
      "lowtide.distributed.setup() does both; nothing to do if separate runs are meant",
      "在 init_process_group 之后用 DistributedDataParallel(model) 包装模型，或每步对梯度求平均；若本来就是独立训练则无需处理", "apart");
  if (step) out.evidence = {{"first_step_that_differs", static_cast<double>(step), ""}};
  document.findings.push_back(std::move(out));
}

void AddDifference(const Ranks& ranks, const Difference& difference, finding::Document& document) {
  std::vector<int> other(difference.ranks.begin(), difference.ranks.end());
  int base = ranks.facts.begin()->first;
  Finding out = RankFinding(
      "LT607",
      fmt::format("the parameters of {} differ from those of rank {}: first seen before step {}, in {} of {} looks up to step {}; {} is "
                  "{:.2g} % apart in size. Each rank trains a model of its own",
                  RankList(other), base, difference.first_step, difference.differing, difference.looks, difference.last_step, difference.name,
                  100 * difference.relative),
      fmt::format("{} 的参数与 rank {} 不同：首次出现在第 {} 步之前，{} 次检查中有 {} 次不同", RankListZh(other), base, difference.first_step,
                  difference.looks, difference.differing),
      "look for training calls that bypass the wrapper (model.module(x)), parameters changed on some ranks only (`if rank == 0:`), weights "
      "loaded after the wrap on one rank, gradients clipped or scaled differently, an optimizer with other settings",
      "检查是否绕过包装调用 model.module(x)、只在部分 rank 上修改或加载参数、各 rank 的裁剪或优化器设置不同", "parameters");
  out.evidence = {{"looks_that_differ", static_cast<double>(difference.differing), ""}, {"looks", static_cast<double>(difference.looks), ""},
                  {"first_step", static_cast<double>(difference.first_step), ""}};
  PlaceOfWrap(ranks, difference.name, out);
  out.where[0].first_step = difference.first_step;
  document.findings.push_back(std::move(out));
}

// Which physical device: its own number where PyTorch knows it, else what CUDA_VISIBLE_DEVICES makes of the index.
std::string DeviceOf(const json& wrap) {
  if (TextOf(wrap, "device") != "cuda") return "";
  if (std::string uuid = TextOf(wrap, "uuid"); !uuid.empty()) return uuid;
  auto index = static_cast<size_t>(std::max(0.0, NumberOf(wrap, "index")));
  std::string visible = TextOf(wrap, "visible");
  for (size_t i = 0; !visible.empty(); ++i) {
    size_t comma = visible.find(',');
    if (i == index) return "GPU " + visible.substr(0, comma);
    visible = comma == std::string::npos ? "" : visible.substr(comma + 1);
  }
  return fmt::format("GPU {}", index);
}

}  // namespace

void CompareParameters(const Ranks& ranks, finding::Document& document) {
  bool alone = ranks.facts.size() > 1 && std::all_of(ranks.facts.begin(), ranks.facts.end(), [](const auto& item) { return item.second.alone; });
  if (alone) return AddApart(ranks, "a launcher started them as one job, but no process group was made", 0, document);
  Difference difference = DifferenceOf(ranks, "items");
  if (difference.looks < 2 || !difference.last_differs || difference.differing < 2) return;
  if (Wrapped(ranks)) return AddDifference(ranks, difference, document);
  bool silent = CollectivesPerStep(ranks) < 0.5;
  if (silent && SameShapes(ranks)) {
    std::string how = fmt::format("their copies of the model have the same shapes but other values since step {}, and {} collectives were called",
                                  difference.first_step, CollectivesPerStep(ranks) > 0 ? "hardly any" : "no");
    return AddApart(ranks, how, difference.first_step, document);
  }
  if (difference.first_equal && SameShapes(ranks) && InputsDiffer(ranks)) AddDifference(ranks, difference, document);
}

void CompareUnused(const Ranks& ranks, finding::Document& document) {
  double walks = 0;
  for (const auto& [rank, facts] : ranks.facts) {
    const json& unused = facts.Last("unused");
    if (!FlagOf(unused, "find_unused") || NumberOf(unused, "walks") < 5 || NumberOf(unused, "seen") > 0) return;
    walks = NumberOf(unused, "walks");
  }
  if (ranks.facts.empty()) return;
  Finding out = RankFinding(
      "LT609",
      fmt::format("find_unused_parameters=True without need: in {} steps looked at on {} ranks every parameter took part in the loss; the wrapper "
                  "walks the whole graph in each step for nothing", walks, ranks.facts.size()),
      fmt::format("不必要的 find_unused_parameters=True：检查的 {} 步中所有参数都参与了损失", walks),
      "wrap with find_unused_parameters=False (the default); keep it only where some parameter really takes no part in some steps",
      "使用默认的 find_unused_parameters=False", "needless");
  out.severity = finding::Severity::kWarning;
  PlaceOfWrap(ranks, "find_unused_parameters", out);
  document.findings.push_back(std::move(out));
}

void CompareDevices(const Ranks& ranks, finding::Document& document) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> users;
  for (const auto& [rank, facts] : ranks.facts) {
    std::string device = DeviceOf(facts.Last("wrap"));
    if (!device.empty()) users[{facts.host, device}].push_back(rank);
  }
  for (const auto& [place, of] : users) {
    if (of.size() < 2) continue;
    Finding out = RankFinding(
        "LT610", fmt::format("{} train on the same GPU ({} of {}): they share its memory and wait for each other", RankList(of), place.second, place.first),
        fmt::format("{} 使用同一块 GPU（{} 的 {}）", RankListZh(of), place.first, place.second),
        "before anything else on the GPU: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])), then model.to(that device)",
        "在使用 GPU 之前调用 torch.cuda.set_device(int(os.environ['LOCAL_RANK']))，再把模型移到该设备", place.first + place.second);
    out.evidence = {{"ranks", static_cast<double>(of.size()), ""}};
    PlaceOfWrap(ranks, "device", out);
    document.findings.push_back(std::move(out));
  }
}

void CompareBuffers(const Ranks& ranks, finding::Document& document) {
  for (const auto& [rank, facts] : ranks.facts) {
    const json& wrap = facts.Last("wrap");
    if (wrap.empty() || FlagOf(wrap, "broadcasts") || NumberOf(wrap, "batch_norms") <= 0) return;
  }
  Difference difference = DifferenceOf(ranks, "buffers");
  if (difference.differing < 2 || !difference.last_differs) return;
  double norms = NumberOf(ranks.facts.begin()->second.Last("wrap"), "batch_norms");
  Finding out = RankFinding(
      "LT611",
      fmt::format("batch statistics are not shared: {} BatchNorm layer(s) under broadcast_buffers=False, and {} is {:.2g} % apart between ranks "
                  "before step {}; evaluation and checkpoints use one rank's own", norms, difference.name, 100 * difference.relative, difference.last_step),
      fmt::format("BatchNorm 统计量没有同步：broadcast_buffers=False，{} 在各 rank 之间不同", difference.name),
      "leave broadcast_buffers at True, or torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) before the wrap; else average the statistics before "
      "evaluation",
      "保持 broadcast_buffers=True，或在包装前使用 SyncBatchNorm；否则在评估前对统计量求平均", "buffers");
  PlaceOfWrap(ranks, difference.name, out);
  document.findings.push_back(std::move(out));
}

void CompareCollectives(const Ranks& ranks, finding::Document& document) {
  if (ranks.facts.size() < 2) return;
  std::map<std::string, std::map<int, double>> counts;
  std::string error;
  for (const auto& [rank, facts] : ranks.facts) {
    const json& end = facts.Last("end");
    if (end.empty() || facts.alone) return;  // killed: what it called last is not known
    if (std::string said = TextOf(end, "error"); !said.empty() && error.empty()) error = fmt::format(". Rank {} ended with {}", rank, said.substr(0, 160));
    auto row = facts.Last("collectives").find("counts");
    if (row == facts.Last("collectives").end() || !row->is_object()) continue;
    for (const auto& [name, count] : row->items()) {
      if (count.is_number()) counts[name][rank] = count.get<double>();
    }
  }
  std::string text;
  for (auto& [name, of] : counts) {
    for (const auto& [rank, facts] : ranks.facts) of.try_emplace(rank, 0);
    auto [least, most] = std::minmax_element(of.begin(), of.end(), [](auto& a, auto& b) { return a.second < b.second; });
    if (least->second == most->second) continue;
    text += fmt::format("{}{} {} times on rank {} and {} times on rank {}", text.empty() ? "" : "; ", name, least->second, least->first, most->second, most->first);
  }
  if (text.empty()) return;
  document.findings.push_back(RankFinding(
      "LT617", fmt::format("the ranks do not call the same collectives: {}{}", text, error), fmt::format("各 rank 调用的集合通信次数不同：{}", text),
      "every rank must reach every collective, in the same order: look for collectives (also barrier, and a wrapped model's forward) under "
      "`if rank == 0:`, an early break or continue, or a loss that is skipped on one rank",
      "每个 rank 必须以相同顺序执行每个集合通信：检查 `if rank == 0:` 分支、提前 break/continue 或被跳过的损失", "collectives"));
}

}  // namespace lowtide::cli
