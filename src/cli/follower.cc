#include "cli/follower.h"

#include <algorithm>

#include "base/error.h"
#include "cli/rank_view.h"

namespace lowtide::cli {

void Follower::FindRings() {
  for (const std::string& path : record::ListRings(folder_)) {
    if (ranks_.count(path)) continue;
    try {
      ranks_[path] = std::make_unique<Rank>(record::Ring::Open(path), options_);
    } catch (const Error&) {
      ranks_.erase(path);  // not whole yet, or no ring: tried again at the next look
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
  for (auto& [path, rank] : ranks_) {
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
  ended_ = !ranks_.empty() && !any_runs;
  return view;
}

}  // namespace lowtide::cli
