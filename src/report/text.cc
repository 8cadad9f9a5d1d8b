#include "report/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "report/phrases.h"
#include "report/plot.h"
#include "report/selection.h"
#include "report/source.h"

namespace lowtide::report {
namespace {

using finding::Finding;
using finding::HolderRow;
using finding::Severity;
using finding::VerdictRow;

class Writer {
 public:
  Writer(const RunView& view, const Terminal& terminal, const std::string& lang)
      : view_(view), terminal_(terminal), words_(lang), many_ranks_(view.ranks.size() > 1) {}

  std::string Write() {
    Selection selection = Select(view_);
    Header();
    for (const Card& card : selection.attention) Block(card);
    if (!selection.quiet.empty()) Line("");
    for (const Card& card : selection.quiet) Quiet(card);
    for (const Finding* finding : selection.findings) Standalone(*finding);
    Footer();
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void Line(fmt::format_string<Args...> format, Args&&... args) {
    out_ += fmt::format(format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void Header() {
    uint64_t steps = 0;
    for (const RankView& rank : view_.ranks) steps = std::max(steps, rank.steps);
    const bool alone = view_.ranks.size() == 1;
    std::string ended = view_.exit_code ? words_.ExitCode(*view_.exit_code) : alone ? words_.Ended(view_.ranks[0].ended) : "";
    if (!ended.empty()) ended = words_.Say(Phrase::kRunEnded, ended);
    Line("{} {}", terminal_.Bold("lowtide:"),
         words_.Say(Phrase::kRunLine, view_.command, FormatCount(steps), view_.ranks.size(),
                    words_.chinese() || alone ? "" : "s", words_.Duration(view_.seconds), ended));
    for (const RankView& rank : view_.ranks) {
      bool notable = rank.lost > 0 || (!rank.ended.empty() && rank.ended != "exit 0");
      if (!notable || (!many_ranks_ && rank.lost == 0)) continue;
      Line("  {}", words_.Say(Phrase::kRankLine, rank.rank, rank.pid, FormatCount(rank.steps), words_.Ended(rank.ended),
                              rank.lost ? words_.Say(Phrase::kRecordsLost, rank.lost) : ""));
    }
    Hosts();
  }

  // Who ran where, for a run on several hosts.
  void Hosts() {
    std::map<std::string, std::vector<int>> hosts;
    for (const RankView& rank : view_.ranks) hosts[rank.host].push_back(rank.rank);
    if (hosts.size() < 2) return;
    for (auto& [host, ranks] : hosts) {
      std::sort(ranks.begin(), ranks.end());
      Line("  {}", words_.Say(Phrase::kHostLine, host, words_.OnRanks(ranks)));
    }
  }

  std::string VerdictWord(const VerdictRow& row) const {
    std::string word = words_.Verdict(row.verdict);
    if (row.verdict == "leak") return terminal_.Red(word);
    if (Urgency(row) == 2) return terminal_.Yellow(word);
    return row.verdict == "healthy" ? terminal_.Green(word) : word;
  }

  void Headline(const VerdictRow& row, const Finding* finding) {
    std::string line = VerdictWord(row) + " " + words_.Pool(row.pool);
    if (many_ranks_) line += words_.Say(Phrase::kOnRank, row.rank);
    if (row.bytes_per_step && row.verdict == "leak") {
      line += ": " + terminal_.Bold(words_.Rate(row.pool, *row.bytes_per_step, true));
      if (row.interval) {
        line += words_.Say(Phrase::kInterval, words_.Rate(row.pool, row.interval->first, false),
                           words_.Rate(row.pool, row.interval->second, false));
      }
      if (row.onset_step) line += words_.Say(Phrase::kSinceStep, *row.onset_step);
      if (row.phase && *row.phase != "step") line += words_.Say(Phrase::kInPhase, words_.During(*row.phase));
    }
    if (finding) line += "  " + terminal_.Dim(finding->code);
    Line("\n{}", line);
  }

  void Label(Phrase label, const std::string& text) { Labelled(words_.Get(label), text); }

  void Labelled(const std::string& label, const std::string& text) {
    if (!text.empty()) Line("  {} {}", terminal_.Cyan(fmt::format("{:<5}", label)), text);
  }

  void Block(const Card& card) {
    const VerdictRow& row = *card.row;
    Headline(row, card.finding);
    if (card.series && card.series->points.size() >= 8) out_ += PlotSeries(*card.series, terminal_);
    std::string sure = row.confidence > 0 ? words_.Say(Phrase::kConfidence, row.confidence * 100) : "";
    Label(Phrase::kWhy, words_.Pick(row.reason, row.reason_zh) + sure);
    for (size_t i = 0; i < card.holders.size(); ++i) Holder(*card.holders[i], i == 0);
    if (card.holders.empty()) Label(Phrase::kWho, words_.Pick(row.unnamed, row.unnamed_zh));
    if (row.steps_to_oom) {
      std::string when = row.seconds_to_oom ? words_.Say(Phrase::kAbout, words_.Duration(*row.seconds_to_oom)) : "";
      Label(Phrase::kLeft, words_.Say(Phrase::kStepsLeft,
                                      FormatCount(static_cast<uint64_t>(std::max(0.0, *row.steps_to_oom))), when));
    }
    Label(Phrase::kSame, Also(card));
    if (card.finding) Label(Phrase::kNext, words_.Pick(card.finding->help, card.finding->help_zh));
  }

  // "CPU tensors, ranks 1-3 +40.9 KB/step; C heap +10 KB/step"
  std::string Also(const Card& card) const {
    std::string text;
    for (const Others& others : OthersOf(card)) {
      if (!text.empty()) text += "; ";
      text += words_.Pool(others.pool) + (many_ranks_ ? words_.OnRanks(others.ranks) : "");
      std::string rates = words_.Rates(others.pool, others.least, others.most);
      if (!rates.empty()) text += " " + rates;
    }
    return text;
  }

  void Holder(const HolderRow& holder, bool first) {
    std::string rate = holder.bytes_per_step > 0 ? ", " + words_.Rate(holder.pool, holder.bytes_per_step, true) : "";
    Labelled(first ? words_.Get(Phrase::kWho) : "",
             words_.Say(Phrase::kHolds, terminal_.Bold(holder.path), FormatBytes(static_cast<double>(holder.retained_bytes)),
                        words_.Objects(holder.objects), rate, holder.via_autograd ? words_.Get(Phrase::kViaAutograd) : ""));
    if (!first || holder.file.empty()) return;
    Place(holder.file, holder.line);
    if (!holder.root.empty()) Line("        {}", terminal_.Dim(words_.Say(Phrase::kRoot, holder.root)));
  }

  void Place(const std::string& file, int line) {
    Line("        {} {}{}", terminal_.Cyan("-->"), file, line > 0 ? fmt::format(":{}", line) : "");
    if (std::string source = SourceLine(file, line); !source.empty()) Line("            {}", source);
  }

  void Quiet(const Card& card) {
    const VerdictRow& row = *card.row;
    std::string ranks = many_ranks_ ? words_.OnRanks(RanksOf(card)) : "";
    Line("{} {}{}: {}", VerdictWord(row), words_.Pool(row.pool), ranks, words_.Pick(row.reason, row.reason_zh));
  }

  void Standalone(const Finding& finding) {
    std::string severity = words_.Severity(finding.severity);
    std::string word = finding.severity == Severity::kError     ? terminal_.Red(severity)
                       : finding.severity == Severity::kWarning ? terminal_.Yellow(severity)
                                                                : terminal_.Cyan(severity);
    Line("\n{} {}: {}", word, finding.code, words_.Pick(finding.message, finding.message_zh));
    for (const auto& where : finding.where) {
      if (!where.file.empty()) Place(where.file, where.line);
    }
    Label(Phrase::kNext, words_.Pick(finding.help, finding.help_zh));
  }

  void Footer() {
    std::string folder = view_.folder_display.empty() ? view_.folder : view_.folder_display;
    if (folder.empty()) return;
    std::string code;
    for (const Finding& finding : view_.document.findings) {
      if (finding.severity == Severity::kError && code.empty()) code = finding.code;
    }
    Line("\n{}", terminal_.Dim(words_.Say(Phrase::kAgain, folder, code.empty() ? "" : words_.Say(Phrase::kMore, code))));
  }

  const RunView& view_;
  const Terminal& terminal_;
  Words words_;
  bool many_ranks_;
  std::string out_;
};

}  // namespace

std::string ToText(const RunView& view, const Terminal& terminal, const std::string& lang) {
  return Writer(view, terminal, lang).Write();
}

}  // namespace lowtide::report
