#include "plan/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "plan/candidates.h"

namespace lowtide::plan {
namespace {

// "1.2 GB over the network a step, +33 % FLOPs recomputed".
Text CostLine(const Candidate& candidate) {
  const Cost& cost = candidate.cost;
  Text line{fmt::format("{} sent a step", FormatBytes(cost.network_bytes)), fmt::format("每步发送 {}", FormatBytes(cost.network_bytes))};
  if (cost.network_bytes == 0) line = {"nothing is sent", "无需通信"};
  if (cost.recompute > 0) {
    line.en += fmt::format(", {:.0f} % of FLOPs done again", 100 * cost.recompute);
    line.zh += fmt::format("，{:.0f} % 的计算重做", 100 * cost.recompute);
  }
  if (cost.bubble > 0) {
    line.en += fmt::format(", {:.0f} % pipeline bubble with {} micro batches", 100 * cost.bubble, candidate.estimate.setup.accumulate);
    line.zh += fmt::format("，{} 个微批时流水线空泡 {:.0f} %", candidate.estimate.setup.accumulate, 100 * cost.bubble);
  }
  if (cost.host_bytes > 0) {
    line.en += fmt::format(", {} to and from the host, {} of host memory a node", FormatBytes(cost.host_bytes), FormatBytes(cost.host_memory));
    line.zh += fmt::format("，与主机往返 {}，每节点主机内存 {}", FormatBytes(cost.host_bytes), FormatBytes(cost.host_memory));
  }
  return line;
}

const Term& LargestTerm(const StageMemory& stage) {
  const Moment moment = stage.PeakMoment();
  return *std::max_element(stage.terms.begin(), stage.terms.end(), [&](const Term& a, const Term& b) { return a.bytes[moment] < b.bytes[moment]; });
}

Text TooMuch(const Candidate& candidate, double capacity) {
  const Estimate& estimate = candidate.estimate;
  const Term& largest = LargestTerm(estimate.Worst());
  const double over = estimate.Peak() + UnusableMemory(estimate).total() - capacity;
  const std::string most = FormatBytes(largest.bytes[estimate.Worst().PeakMoment()]);
  if (over <= 0) {
    return {fmt::format("{} to spare by the figures, less than their error; most is {} ({})", FormatBytes(-over), largest.name.en, most),
            fmt::format("按数字剩余 {}，小于误差；最大的一项是{}（{}）", FormatBytes(-over), largest.name.zh, most)};
  }
  return {fmt::format("{} too much; most is {} ({})", FormatBytes(over), largest.name.en, most),
          fmt::format("超出 {}；最大的一项是{}（{}）", FormatBytes(over), largest.name.zh, most)};
}

Candidate Evaluate(const Request& request, const Variant& variant) {
  Candidate candidate;
  candidate.kind = variant.kind;
  candidate.estimate = Predict(request.shape, variant.setup);
  candidate.cost = Price(request.shape, variant.setup, request.gpu);
  if (request.capacity > 0) candidate.fit = Judge(candidate.estimate, request.capacity);
  return candidate;
}

// Tensor and pipeline parallelism change the model's code and the library that runs it: they must save this much time to be
// put before what wraps the model as it is.
double Effort(const Candidate& candidate) {
  if (candidate.kind.find("tp") != std::string::npos || candidate.kind.find("pp") != std::string::npos) return candidate.kind == "tp-fsdp" ? 1.15 : 1.25;
  return candidate.kind.find("cp") != std::string::npos || candidate.kind.find("ep") != std::string::npos ? 1.1 : 1;
}

double Order(const Candidate& candidate) { return candidate.cost.seconds_per_token * Effort(candidate); }

bool Better(const Candidate& a, const Candidate& b) {
  if (a.fit != b.fit) return a.fit < b.fit;
  if (a.fit == Fit::kFits) return Order(a) < Order(b);
  return a.estimate.Peak() < b.estimate.Peak();
}

void Finish(const Request& request, Candidate& candidate) {
  candidate.largest_micro_batch = LargestMicroBatch(request.shape, candidate.estimate.setup, request.capacity);
  candidate.why = candidate.fit == Fit::kFits || request.capacity <= 0 ? CostLine(candidate) : TooMuch(candidate, request.capacity);
}

std::vector<Candidate> Rank(const Request& request) {
  std::map<std::string, Candidate> best;
  for (const Variant& variant : Variants(request)) {
    Candidate candidate = Evaluate(request, variant);
    auto at = best.find(variant.kind);
    if (at == best.end()) {
      best.emplace(variant.kind, std::move(candidate));
    } else if (Better(candidate, at->second)) {
      at->second = std::move(candidate);
    }
  }
  std::vector<Candidate> all;
  for (auto& [kind, candidate] : best) {
    Finish(request, candidate);
    all.push_back(std::move(candidate));
  }
  std::stable_sort(all.begin(), all.end(), Better);
  return all;
}

Text PopularReason(const Plan& plan, const Popular& popular) {
  const Candidate& theirs = popular.candidate;
  const StageMemory& worst = theirs.estimate.Worst();
  if (theirs.fit != Fit::kFits) {
    const std::string needs = FormatBytes(theirs.estimate.Peak() + UnusableMemory(theirs.estimate).total()), has = FormatBytes(plan.request.capacity);
    const Term& largest = LargestTerm(worst);
    const std::string most = FormatBytes(largest.bytes[worst.PeakMoment()]);
    Text text{fmt::format("it needs {} of {}, most of it {} ({}): a count of parameters does not know the GPU, the batch or the sequence", needs, has, largest.name.en, most),
              fmt::format("它需要 {}（共有 {}），最大的一项是{}（{}）：仅凭参数量并不知道 GPU、批大小和序列长度", needs, has, largest.name.zh, most)};
    for (const Candidate& candidate : plan.candidates) {
      if (candidate.kind != theirs.kind || candidate.fit != Fit::kFits) continue;
      text.en += "; with activation checkpointing it fits, see the table";
      text.zh += "；配合激活重计算则放得下，见表";
    }
    return text;
  }
  if (plan.chosen && plan.candidates[*plan.chosen].kind == theirs.kind) return {"the arithmetic agrees here", "此处与计算一致"};
  if (!plan.chosen) return {"see the table for what it costs", "代价见表"};
  const double slower = theirs.cost.seconds_per_token / plan.candidates[*plan.chosen].cost.seconds_per_token;
  return {fmt::format("about {:.1f} times the time of {}: {}", slower, Describe(plan.candidates[*plan.chosen].estimate.setup), CostLine(theirs).en),
          fmt::format("用时约为 {} 的 {:.1f} 倍：{}", Describe(plan.candidates[*plan.chosen].estimate.setup, true), slower, CostLine(theirs).zh)};
}

void AddPopular(Plan& plan) {
  Popular popular;
  const Variant variant = PopularVariant(plan.request, plan.count.total, &popular.name);
  if (variant.kind.empty()) return;
  popular.candidate = Evaluate(plan.request, variant);
  Finish(plan.request, popular.candidate);
  popular.reason = PopularReason(plan, popular);
  plan.popular = std::move(popular);
}

void AddNotes(Plan& plan) {
  for (const Text& text : plan.request.shape.assumed) plan.notes.push_back({"assumed: " + text.en, "假设：" + text.zh});
  if (!plan.candidates.empty()) {
    const uint64_t sequences = plan.request.setup.micro_batch * plan.request.setup.accumulate * plan.request.setup.gpus;
    plan.notes.push_back({fmt::format("strategies are compared at {} sequences a step", FormatCount(sequences)), fmt::format("各策略均按每步 {} 个序列比较", FormatCount(sequences))});
  }
  if (!plan.request.setup.flash) return;
  plan.notes.push_back({"attention is taken to be flash or memory-efficient; --attention eager adds the scores of s x s",
                        "假定使用 flash 或省内存的注意力；--attention eager 会加上 s × s 的分数"});
}

}  // namespace

uint64_t LargestMicroBatch(const Shape& shape, Setup setup, double capacity) {
  constexpr uint64_t kMost = 65536;
  if (capacity <= 0 || setup.states_only) return 0;
  auto fits = [&](uint64_t batch) {
    setup.micro_batch = batch;
    return Judge(Predict(shape, setup), capacity) == Fit::kFits;
  };
  if (!fits(1)) return 0;
  uint64_t low = 1, high = 2;
  while (high <= kMost && fits(high)) low = high, high *= 2;
  while (high - low > 1) {
    const uint64_t middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return std::min(low, kMost);
}

Plan MakePlan(const Request& request) {
  Plan plan;
  plan.request = request;
  CheckShape(request.shape);
  plan.count = CountParameters(request.shape);
  const bool own = request.strategy_given || request.capacity <= 0;
  if (own) {
    plan.shown = Evaluate(request, {"own", request.setup});
    Finish(request, plan.shown);
  }
  if (request.capacity > 0 && !request.setup.states_only) {
    plan.candidates = Rank(request);
    if (!plan.candidates.empty() && plan.candidates[0].fit == Fit::kFits) plan.chosen = 0;
    if (!own && !plan.candidates.empty()) plan.shown = plan.candidates[0];
    AddPopular(plan);
  }
  AddNotes(plan);
  return plan;
}

}  // namespace lowtide::plan
