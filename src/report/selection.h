#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/run_view.h"

namespace lowtide::report {

// One verdict with all that belongs to it. Pointers are into the RunView.
struct Card {
  const finding::VerdictRow* row = nullptr;
  std::vector<const finding::VerdictRow*> also;     // the same cause in other pools and ranks, less urgent
  const finding::Finding* finding = nullptr;        // nullptr: none
  std::vector<const finding::HolderRow*> holders;   // of this rank; the guilty one first
  const SeriesView* series = nullptr;               // nullptr: nothing to draw
};

// What every report of a run shows, in which order: verdicts that need attention (the most urgent first, rows of one
// cause together), verdicts that need none (one card for a pool with the same verdict on several ranks), findings that belong to no verdict, series without a verdict.
struct Selection {
  std::vector<Card> attention, quiet;
  std::vector<const finding::Finding*> findings;
  std::vector<const SeriesView*> unjudged;
};

Selection Select(const RunView& view);

// The rows that stand with a card, by pool: on which ranks (sorted), between which rates.
struct Others {
  std::string pool;
  std::vector<int> ranks;
  std::optional<double> least, most;
};
std::vector<Others> OthersOf(const Card& card);

// The ranks of a card and of all that stands with it, sorted.
std::vector<int> RanksOf(const Card& card);

// 0 a leak that runs out soon, 1 a leak, 2 capacity or fragmentation, 3 nothing to do.
int Urgency(const finding::VerdictRow& row);

const SeriesView* FindSeries(const RunView& view, const std::string& pool, int rank);

}  // namespace lowtide::report
