#include "cli/follower.h"

#include <algorithm>

#include "base/error.h"
#include "cli/rank_view.h"

namespace lowtide::cli {

void Follower::FindRings() {
  unreadable_.clear();
  for (const std::string& path : record::ListRings(folder_)) {
    if (known_.count(path)) continue;
    try {
      record::Ring ring = record::Ring::Open(path);
      int64_t pid = ring.header().pid;
      if (pid > 0) known_.insert(path);
      if (pid > 0 && !ranks_.count(pid)) ranks_[pid] = std::make_unique<Rank>(std::move(ring), options_);
    } catch (const Error& error) {
      unreadable_[path] = error.message();  // perhaps not whole yet: tried again at the next look
    }
  }
}

void Follower::Update(Rank& rank) {
  bool fresh = rank.ring.Refresh() > 0;
  rank.view = RankViewOf(rank.ring);
  if (!fresh && !rank.series.empty()) return;
  rank.judge.Update(rank.ring);
  auto judgements = rank.judge.Judge(false);
  std::vector<size_t> cause = Reconcile(judgements);
  rank.series = rank.judge.Series();
  rank.verdicts.clear();
  for (size_t i = 0; i < judgements.size(); ++i) {
    finding::VerdictRow row = verdict::ToRow(judgements[i]);
    if (cause[i] != i) row.explained_by = judgements[cause[i]].pool;
    rank.verdicts.push_back(std::move(row));
  }
}

report::RunView Follower::Look() {
  FindRings();
  report::RunView view;
  view.folder = folder_;
  bool any_runs = false;
  for (auto& [pid, rank] : ranks_) {
    try {
      Update(*rank);
    } catch (const Error&) {
      // Collected into the run folder while we looked; what was read stays.
    }
    if (view.command.empty()) view.command = rank->ring.header().script;
    any_runs |= rank->view.ended == "still running";
    if (rank->view.role != "trainer" && rank->view.steps == 0) continue;
    view.ranks.push_back(rank->view);
    view.series.insert(view.series.end(), rank->series.begin(), rank->series.end());
    view.document.verdicts.insert(view.document.verdicts.end(), rank->verdicts.begin(), rank->verdicts.end());
  }
  for (const auto& [path, why] : unreadable_) {
    finding::Finding finding;
    finding.code = "LT903";
    finding.message = path + ": " + why;
    view.document.findings.push_back(std::move(finding));
  }
  ended_ = !ranks_.empty() && !any_runs;
  return view;
}

}  // namespace lowtide::cli
