#include "cli/follower.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "cli/iterations.h"
#include "cli/rank_files.h"
#include "cli/rank_view.h"
#include "cli/ranks_compare.h"

namespace lowtide::cli {
namespace {

constexpr double kCompareEvery = 5;      // seconds between two comparisons of the ranks ...
constexpr double kCompareShare = 0.005;  // ... or as many as make them take this share of a core
constexpr size_t kShownPoints = 128;     // of a series: what fits a line of a terminal, and some more
constexpr double kMostSaved = 0.2;  // seconds of judging that a long pause allows at once

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Each look takes and gives back as much memory as the one before: the allocator keeps it, instead of asking the system
// for fresh pages every time.
void KeepMemory() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 64 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

}  // namespace

Follower::Follower(std::string folder, JudgeOptions options) : folder_(std::move(folder)), options_(options) { KeepMemory(); }

void JudgeBudget::Begin() {
  double now = Now();
  seconds_ = std::clamp(last_ > 0 ? seconds_ + share_ * (now - last_) : kMostSaved, -kMostSaved, kMostSaved);
  last_ = now;
}

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

void Follower::Read(Rank& rank) {
  try {
    if (rank.ring.Refresh() > 0 || rank.judged_at == 0) rank.judge.Update(rank.ring);
  } catch (const Error&) {
    // Collected into the run folder while we looked; what was read stays.
  }
  rank.view = RankViewOf(rank.ring);
}

void Follower::Judge(Rank& rank, JudgeBudget& budget) {
  double started = Now();
  rank.judgements = rank.judge.Judge(false);
  rank.cause = Reconcile(rank.judgements);
  rank.judged_step = rank.judge.steps();
  rank.judged_at = Now();
  budget.Spend(rank.judged_at - started);
}

void Follower::Refresh(JudgeBudget& budget) {
  FindRings();
  bool any_runs = false;
  std::vector<Rank*> waiting;
  for (auto& [process, rank] : ranks_) {
    Read(*rank);
    bool runs = rank->view.ended == "still running";
    any_runs |= runs;
    if (rank->judge.steps() == rank->judged_step) continue;
    if (runs && rank->judged_step > 0) {
      waiting.push_back(rank.get());
    } else {
      Judge(*rank, budget);
    }
  }
  std::sort(waiting.begin(), waiting.end(), [](const Rank* a, const Rank* b) { return a->judged_at < b->judged_at; });
  for (Rank* rank : waiting) {
    if (!budget.Left()) break;
    Judge(*rank, budget);
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

void Follower::Compare() {
  if (ranks_.size() < 2 || (compared_at_ > 0 && Now() < compared_at_ + compare_pause_)) return;
  const double started = Now();
  finding::Document document;
  cli::Ranks together;
  together.facts = ReadFacts(folder_);
  for (const Followed& rank : Ranks()) together.tracks.push_back(TrackOf(rank.ring));
  ReadRankFiles(folder_, document);
  CompareRanks(together, document);
  between_ = std::move(document.findings);
  compared_at_ = Now();
  compare_pause_ = std::max(kCompareEvery, (compared_at_ - started) / kCompareShare);
}

report::RunView Follower::Look() {
  budget_.Begin();
  Refresh(budget_);
  report::RunView view;
  view.folder = folder_;
  if (!ranks_.empty()) view.command = ranks_.begin()->second->ring.header().script;
  for (const Followed& rank : Ranks()) {
    view.command = rank.ring.header().script;
    const Iterations iterations = IterationsOf(rank.ring);
    view.ranks.push_back(rank.view);
    CountInIterations(iterations, view.ranks.back());
    for (auto& series : rank.judge.Series(kShownPoints)) {
      CountInIterations(iterations, series);
      view.series.push_back(std::move(series));
    }
    for (size_t i = 0; i < rank.judgements.size(); ++i) {
      verdict::Judgement judgement = rank.judgements[i];
      CountInIterations(iterations, judgement);
      finding::VerdictRow row = verdict::ToRow(judgement);
      if (rank.cause[i] != i) row.explained_by = rank.judgements[rank.cause[i]].pool;
      view.document.verdicts.push_back(std::move(row));
    }
  }
  Compare();
  view.document.findings = between_;
  for (const auto& [path, why] : unreadable_) {
    finding::Finding finding;
    finding.code = "LT903";
    finding.message = path + ": " + why;
    view.document.findings.push_back(std::move(finding));
  }
  return view;
}

}  // namespace lowtide::cli
