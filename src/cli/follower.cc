#include "cli/follower.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "cli/rank_view.h"

namespace lowtide::cli {

void Follower::FindRings() {
  unreadable_.clear();
  for (const std::string& path : record::ListRings(folder_)) {
    if (known_.count(path)) continue;
    try {
      record::Ring ring = record::Ring::Open(path);
      const record::FileHeader& header = ring.header();
      if (header.pid <= 0) continue;
      known_.insert(path);
      Process process{header.hostname, header.pid, header.start_mono_ns};
      if (!ranks_.count(process)) ranks_[process] = std::make_unique<Rank>(std::move(ring), options_);
    } catch (const Error& error) {
      unreadable_[path] = error.message();  // perhaps not whole yet: tried again at the next look
    }
  }
}

void Follower::Update(Rank& rank) {
  bool fresh = rank.ring.Refresh() > 0;
  rank.view = RankViewOf(rank.ring);
  if (!fresh && !rank.judgements.empty()) return;
  rank.judge.Update(rank.ring);
  rank.judgements = rank.judge.Judge(false);
  rank.cause = Reconcile(rank.judgements);
}

void Follower::Refresh() {
  FindRings();
  bool any_runs = false;
  for (auto& [process, rank] : ranks_) {
    try {
      Update(*rank);
    } catch (const Error&) {
      // Collected into the run folder while we looked; what was read stays.
    }
    any_runs |= rank->view.ended == "still running";
  }
  ended_ = !ranks_.empty() && !any_runs;
}

std::vector<Follower::Followed> Follower::Ranks() const {
  std::vector<Followed> followed;
  for (const auto& [process, rank] : ranks_) {
    if (rank->view.role != "trainer" && rank->view.steps == 0) continue;
    followed.push_back({rank->ring, rank->view, rank->judge, rank->judgements, rank->cause});
  }
  std::vector<size_t> order(followed.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    auto key = [&](size_t i) { return std::pair(followed[i].view.rank, followed[i].ring.header().start_wall_ns); };
    return key(a) < key(b);
  });
  std::vector<Followed> sorted;
  for (size_t i : order) sorted.push_back(followed[i]);
  return sorted;
}

report::RunView Follower::Look() {
  Refresh();
  report::RunView view;
  view.folder = folder_;
  if (!ranks_.empty()) view.command = ranks_.begin()->second->ring.header().script;
  for (const Followed& rank : Ranks()) {
    view.command = rank.ring.header().script;
    view.ranks.push_back(rank.view);
    for (auto& series : rank.judge.Series()) view.series.push_back(std::move(series));
    for (size_t i = 0; i < rank.judgements.size(); ++i) {
      finding::VerdictRow row = verdict::ToRow(rank.judgements[i]);
      if (rank.cause[i] != i) row.explained_by = rank.judgements[rank.cause[i]].pool;
      view.document.verdicts.push_back(std::move(row));
    }
  }
  for (const auto& [path, why] : unreadable_) {
    finding::Finding finding;
    finding.code = "LT903";
    finding.message = path + ": " + why;
    view.document.findings.push_back(std::move(finding));
  }
  return view;
}

}  // namespace lowtide::cli
