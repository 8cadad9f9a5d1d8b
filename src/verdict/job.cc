#include "verdict/job.h"

#include <algorithm>
#include <map>
#include <set>

namespace lowtide::verdict {
namespace {

EngineOptions OptionsFor(const series::Series& s, int ranks, const TableOptions& options) {
  EngineOptions out;
  out.pool = s.pool, out.rank = s.rank, out.ranks = ranks, out.quantum = s.quantum;
  out.running_maximum = s.running_maximum;
  out.figure = s.nameless          ? Figure::kNameless
               : s.driver          ? Figure::kDriver
               : s.running_maximum ? Figure::kRunningPeak
                                   : Figure::kPool;
  out.capacity = options.capacity ? options.capacity : s.capacity;
  // A file was made to be judged: small exact growth counts, whatever the figure is.
  if (s.nameless) out.min_growth = 8 * s.quantum;
  return out;
}

Judgement JudgeOne(const series::Series& s, int ranks, const TableOptions& options) {
  Engine engine(OptionsFor(s, ranks, options));
  size_t next = 0;
  uint64_t last = 0;
  for (auto& p : s.points) {
    if (p.step < last) next = 0;
    while (next < s.marks.size() && s.marks[next].second <= p.step) {
      engine.AddMark(s.marks[next].first, s.marks[next].second);
      ++next;
    }
    last = p.step;
    engine.Add(p);
  }
  return engine.Judge(true);
}

}  // namespace

std::vector<Judgement> JudgeTable(const series::Table& table, const TableOptions& options) {
  std::set<int> ranks;
  for (auto& s : table.series) ranks.insert(s.rank);
  std::vector<Judgement> out;
  for (auto& s : table.series) out.push_back(JudgeOne(s, static_cast<int>(ranks.size()), options));
  NameRanks(out);
  return out;
}

void NameRanks(std::vector<Judgement>& judgements) {
  std::map<std::string, std::vector<Judgement*>> pools;
  // Each rank has its own device: cuda:0 of rank 0 is compared with cuda:1 of rank 1.
  for (auto& j : judgements) pools[j.pool.substr(0, j.pool.find(':'))].push_back(&j);
  for (auto& [name, rows] : pools) {
    std::set<int> all, leaking;
    for (auto* j : rows) {
      all.insert(j->rank);
      if (j->kind == Kind::kLeak) leaking.insert(j->rank);
    }
    if (leaking.empty() || leaking.size() == all.size()) continue;
    for (auto* j : rows)
      if (j->kind == Kind::kLeak)
        j->only_ranks.assign(leaking.begin(), leaking.end()), j->ranks = static_cast<int>(all.size());
  }
}

}  // namespace lowtide::verdict
