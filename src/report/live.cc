#include "report/live.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "base/units.h"
#include "report/columns.h"
#include "report/phrases.h"
#include "report/plot.h"
#include "report/selection.h"

namespace lowtide::report {
namespace {

using finding::VerdictRow;

constexpr int kGap = 2;
constexpr int kVerdict = 20, kSmallSpark = 8, kWidestSpark = 48;  // columns

// A pool of a rank, with its verdict if there is one yet.
struct Row {
  const SeriesView* series = nullptr;
  const VerdictRow* verdict = nullptr;
  int urgency() const { return verdict ? Urgency(*verdict) : 4; }
};

class Live {
 public:
  Live(const RunView& view, const Terminal& terminal, const std::string& lang)
      : view_(view), terminal_(terminal), words_(lang), many_ranks_(view.ranks.size() > 1), pool_columns_(many_ranks_ ? 20 : 18) {}

  std::vector<std::string> Lines(int height) {
    Collect();
    Head();
    std::vector<std::string> reasons = Reasons();
    if (rows_.empty()) {
      lines_.push_back(terminal_.Dim(CutTo(words_.Get(Phrase::kWatchWaiting), terminal_.width)));
      lines_.insert(lines_.end(), reasons.begin(), reasons.end());
      return std::move(lines_);
    }
    int room = height - static_cast<int>(lines_.size()) - 1 - static_cast<int>(reasons.size());
    size_t hidden = DropCalm(static_cast<size_t>(std::max(room, 1)));
    lines_.push_back(terminal_.Dim(Cells(words_.Get(Phrase::kRankHead), words_.Get(Phrase::kWatchPool), words_.Get(Phrase::kWatchNow),
                                         words_.Get(Phrase::kWatchTrend), words_.Get(Phrase::kWatchVerdict))));
    for (const Row& row : rows_) lines_.push_back(Line(row));
    if (hidden) lines_.push_back(terminal_.Dim(CutTo(words_.Say(Phrase::kWatchHidden, hidden), terminal_.width)));
    lines_.insert(lines_.end(), reasons.begin(), reasons.end());
    return std::move(lines_);
  }

 private:
  void Collect() {
    std::map<std::pair<int, std::string_view>, const VerdictRow*> verdicts;
    for (const VerdictRow& verdict : view_.document.verdicts) verdicts[{verdict.rank, verdict.pool}] = &verdict;
    for (const SeriesView& series : view_.series) {
      if (series.points.empty()) continue;
      auto found = verdicts.find({series.rank, series.pool});
      rows_.push_back({&series, found == verdicts.end() ? nullptr : found->second});
    }
  }

  void Head() {
    uint64_t steps = 0;
    std::string ended;
    for (const RankView& rank : view_.ranks) {
      steps = std::max(steps, rank.steps);
      if (ended.empty() || rank.ended == "still running") ended = rank.ended;
    }
    std::string state = words_.Say(Phrase::kWatchStep, FormatCount(steps));
    if (!ended.empty()) state += "  " + words_.Ended(ended);
    int room = terminal_.width - 9;
    state = CutTo(state, std::max(room / 2, room - 40));
    std::string name = CutTo(view_.command.empty() ? view_.folder : view_.command, room - 2 - DisplayWidth(state));
    lines_.push_back(terminal_.Bold("lowtide") + "  " + name + "  " + terminal_.Dim(state));
  }

  // Leaves at most `room` rows, dropping the calmest from the end; returns how many went.
  size_t DropCalm(size_t room) {
    size_t all = rows_.size();
    while (rows_.size() > room || (rows_.size() == room && rows_.size() < all)) {
      if (rows_.size() <= 1) break;
      int calmest = 0;
      for (const Row& row : rows_) calmest = std::max(calmest, row.urgency());
      auto last = std::find_if(rows_.rbegin(), rows_.rend(), [&](const Row& row) { return row.urgency() == calmest; });
      rows_.erase(std::next(last).base());
    }
    return all - rows_.size();
  }

  std::string Cells(const std::string& rank, const std::string& pool, const std::string& now, const std::string& trend,
                    const std::string& verdict) const {
    std::string text = many_ranks_ ? FitRight(rank, 4) + "  " : "";
    text += FitLeft(pool, pool_columns_) + FitRight(now, 9) + "  " + FitRight(trend, 15) + "  " + verdict;
    return CutTo(text, terminal_.width);
  }

  std::string Line(const Row& row) const {
    const SeriesView& series = *row.series;
    const VerdictRow* verdict = row.verdict;
    std::string trend = verdict && verdict->bytes_per_step && verdict->verdict != "healthy"
                            ? words_.Rate(series.pool, *verdict->bytes_per_step, true)
                            : "";
    std::string text = Cells(std::to_string(series.rank), words_.Pool(series.pool),
                             Words::Amount(series.pool, series.now.value_or(series.points.back().value)), trend, "");
    int room = terminal_.width - DisplayWidth(text);
    std::string word = verdict ? words_.Verdict(verdict->verdict) : "";
    if (verdict && verdict->steps_to_oom && Urgency(*verdict) < 2) {
      word += ", " + words_.Say(Phrase::kWatchLeft, FormatCount(static_cast<uint64_t>(std::max(0.0, *verdict->steps_to_oom))));
    }
    int wide = std::min(room, room >= kVerdict + kGap + kSmallSpark ? std::clamp(room - kGap - kSmallSpark, kVerdict, 30) : 30);
    text += Colour(row, FitLeft(word, wide));
    int spark = std::min(room - wide - kGap, kWidestSpark);
    if (spark >= kSmallSpark) text += std::string(kGap, ' ') + Spark(series, spark);
    return text;
  }

  std::string Colour(const Row& row, const std::string& text) const {
    int urgency = row.urgency();
    if (urgency < 2) return terminal_.Red(text);
    if (urgency == 2) return terminal_.Yellow(text);
    return row.verdict && row.verdict->verdict == "healthy" ? terminal_.Green(text) : text;
  }

  std::string Spark(const SeriesView& series, int columns) const {
    std::vector<double> values;
    for (const auto& point : series.points) values.push_back(point.value);
    return Sparkline(values, columns, terminal_);
  }

  // Why, for at most three causes that need attention, and at most two other findings.
  std::vector<std::string> Reasons() const {
    std::vector<std::string> reasons;
    Selection selection = Select(view_);
    if (selection.attention.size() > 3) selection.attention.resize(3);
    if (selection.findings.size() > 2) selection.findings.resize(2);
    for (const Card& card : selection.attention) {
      std::string where = words_.Pool(card.row->pool) + (many_ranks_ ? words_.Say(Phrase::kOnRank, card.row->rank) : "");
      std::string text = where + ": " + words_.Pick(card.row->reason, card.row->reason_zh);
      for (std::string& line : WrapTo(text, terminal_.width)) reasons.push_back(std::move(line));
    }
    for (const finding::Finding* finding : selection.findings) {
      std::string text = finding->code + " " + words_.Pick(finding->message, finding->message_zh);
      for (std::string& line : WrapTo(text, terminal_.width)) reasons.push_back(std::move(line));
    }
    if (!reasons.empty()) reasons.insert(reasons.begin(), "");
    return reasons;
  }

  const RunView& view_;
  const Terminal& terminal_;
  Words words_;
  bool many_ranks_;
  int pool_columns_;
  std::vector<Row> rows_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> LiveLines(const RunView& view, const Terminal& terminal, const std::string& lang, int height) {
  return Live(view, terminal, lang).Lines(height);
}

}  // namespace lowtide::report
