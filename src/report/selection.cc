#include "report/selection.h"

#include <algorithm>
#include <set>

namespace lowtide::report {
namespace {

using finding::Finding;
using finding::HolderRow;
using finding::VerdictRow;

constexpr int kQuiet = 3;

// The same growth shows in several pools of the host: a tensor's bytes in cpu, its graph's nodes in heap.
bool IsHost(const std::string& pool) { return pool == "cpu" || pool == "heap" || pool == "host"; }

const Finding* FindingOf(const RunView& view, const VerdictRow& row) {
  if (row.fingerprint.empty()) return nullptr;
  for (const Finding& finding : view.document.findings) {
    if (finding.fingerprint == row.fingerprint) return &finding;
  }
  return nullptr;
}

std::vector<const HolderRow*> HoldersOf(const RunView& view, const VerdictRow& row) {
  std::vector<const HolderRow*> holders;
  if (row.verdict != "leak") return holders;
  for (const HolderRow& holder : view.document.holders) {
    bool same_pool = holder.pool == row.pool || (IsHost(holder.pool) && IsHost(row.pool));
    if (holder.rank == row.rank && same_pool && holders.size() < 3) holders.push_back(&holder);
  }
  return holders;
}

// Rows that tell of one cause: the same finding; where they have none, the same pool and verdict on another rank.
bool SameCause(const VerdictRow& a, const VerdictRow& b) {
  if (a.verdict != b.verdict) return false;
  if (!a.fingerprint.empty() || !b.fingerprint.empty()) return a.fingerprint == b.fingerprint;
  return a.pool == b.pool && a.phase == b.phase && a.rank != b.rank;
}

void AddAttention(const RunView& view, const VerdictRow& row, std::vector<Card>& cards) {
  for (Card& card : cards) {
    if (SameCause(*card.row, row)) return card.also.push_back(&row);
  }
  Card card;
  card.row = &row;
  card.finding = FindingOf(view, row);
  card.holders = HoldersOf(view, row);
  card.series = FindSeries(view, row.pool, row.rank);
  cards.push_back(std::move(card));
}

void AddQuiet(const RunView& view, const VerdictRow& row, std::vector<Card>& cards) {
  for (Card& card : cards) {
    if (card.row->pool == row.pool && card.row->verdict == row.verdict && card.row->rank != row.rank) return card.also.push_back(&row);
  }
  cards.push_back({&row, {}, FindingOf(view, row), {}, FindSeries(view, row.pool, row.rank)});
}

// A row that another pool explains stands with that pool's card; without one it stands for itself.
void Attach(const RunView& view, const VerdictRow& row, std::vector<Card>& cards) {
  for (Card& card : cards) {
    auto is_cause = [&](const VerdictRow& cause) { return cause.rank == row.rank && cause.pool == row.explained_by; };
    bool in_group = std::any_of(card.also.begin(), card.also.end(), [&](auto* other) { return is_cause(*other); });
    if (is_cause(*card.row) || in_group) return card.also.push_back(&row);
  }
  AddAttention(view, row, cards);
}

}  // namespace

int Urgency(const VerdictRow& row) {
  if (row.verdict == "leak") return row.alarm ? 0 : 1;
  return row.verdict == "capacity" || row.verdict == "fragmentation" ? 2 : kQuiet;
}

std::vector<Others> OthersOf(const Card& card) {
  std::vector<Others> groups;
  for (const VerdictRow* row : card.also) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Others& others) { return others.pool == row->pool; });
    if (group == groups.end()) group = groups.insert(groups.end(), Others{row->pool, {}, {}, {}});
    group->ranks.push_back(row->rank);
    if (!row->bytes_per_step) continue;
    group->least = std::min(group->least.value_or(*row->bytes_per_step), *row->bytes_per_step);
    group->most = std::max(group->most.value_or(*row->bytes_per_step), *row->bytes_per_step);
  }
  for (Others& group : groups) std::sort(group.ranks.begin(), group.ranks.end());
  return groups;
}

std::vector<int> RanksOf(const Card& card) {
  std::set<int> ranks{card.row->rank};
  for (const VerdictRow* row : card.also) ranks.insert(row->rank);
  return {ranks.begin(), ranks.end()};
}

const SeriesView* FindSeries(const RunView& view, const std::string& pool, int rank) {
  for (const SeriesView& series : view.series) {
    if (series.pool == pool && series.rank == rank && series.points.size() >= 2) return &series;
  }
  return nullptr;
}

Selection Select(const RunView& view) {
  std::vector<const VerdictRow*> rows;
  for (const VerdictRow& row : view.document.verdicts) rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(), [](auto* a, auto* b) { return Urgency(*a) < Urgency(*b); });
  Selection selection;
  std::vector<const VerdictRow*> explained;
  std::set<const Finding*> told;
  std::set<const SeriesView*> judged;
  for (const VerdictRow* row : rows) {
    told.insert(FindingOf(view, *row));
    judged.insert(FindSeries(view, row->pool, row->rank));
    if (Urgency(*row) < kQuiet && !row->explained_by.empty()) {
      explained.push_back(row);
    } else if (Urgency(*row) < kQuiet) {
      AddAttention(view, *row, selection.attention);
    } else {
      AddQuiet(view, *row, selection.quiet);
    }
  }
  for (const VerdictRow* row : explained) Attach(view, *row, selection.attention);
  for (const Finding& finding : view.document.findings) {
    if (!told.count(&finding)) selection.findings.push_back(&finding);
  }
  for (const SeriesView& series : view.series) {
    if (series.points.size() >= 2 && !judged.count(&series)) selection.unjudged.push_back(&series);
  }
  return selection;
}

}  // namespace lowtide::report
