#include "report/html.h"

#include <algorithm>
#include <set>

#include "base/units.h"
#include "finding/catalogue.h"
#include "finding/pages.h"
#include "finding/version.h"
#include "report/html_card.h"
#include "report/html_hide.h"
#include "report/html_series.h"
#include "report/markdown.h"

namespace lowtide::report {
namespace {

using finding::Finding;
using finding::Severity;
using finding::VerdictRow;

constexpr const char* kLogo =
    "<svg class=\"logo\" viewBox=\"0 0 16 16\" aria-hidden=\"true\"><path d=\"M1 5q3.5-4 7 0t7 0M1 9q3.5-4 7 0t7 0"
    "M1 13q3.5-4 7 0t7 0\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.6\" stroke-linecap=\"round\"/></svg>";

class RunPage {
 public:
  RunPage(const RunView& view, const HtmlOptions& options)
      : view_(view), options_(options), words_(options.lang), selection_(Select(view)), cards_(view, words_, html_) {}

  std::string Render() {
    html_.Leaf("a", {{"class", "skip"}, {"href", "#verdicts"}}, words_.Get(Phrase::kSkip));
    Header();
    html_.Open("main", {{"id", "verdicts"}});
    Section(Phrase::kAttention, selection_.attention.empty(), [&] {
      for (const Card& card : selection_.attention) cards_.Attention(card);
    });
    Section(Phrase::kFindings, selection_.findings.empty(), [&] {
      for (const Finding* finding : selection_.findings) cards_.Standalone(*finding);
    });
    Section(selection_.attention.empty() ? Phrase::kPools : Phrase::kOtherPools,
            selection_.quiet.empty() && selection_.unjudged.empty(), [&] { Pools(); });
    Section(Phrase::kPerRank, view_.ranks.empty(), [&] { Ranks(); });
    Explanations();
    html_.Close();
    Footer();
    Page page;
    page.title = options_.hide_sources ? words_.Get(Phrase::kPageTitleHidden) : words_.Say(Phrase::kPageTitle, view_.command);
    page.lang = options_.lang;
    page.body = html_.Take();
    page.data_json = ChartData(view_, words_);
    return RenderPage(page);
  }

 private:
  template <typename Body>
  void Section(Phrase title, bool empty, Body body) {
    if (empty) return;
    html_.Open("section").Leaf("h2", {}, words_.Get(title));
    body();
    html_.Close();
  }

  void Tile(Phrase label, const std::string& value) {
    html_.Open("div").Leaf("dt", {}, words_.Get(label)).Leaf("dd", {}, value).Close();
  }

  void Header() {
    html_.Open("header").Open("p", {{"class", "brand"}}).Raw(kLogo).Text(" lowtide").Close();
    std::string mood = selection_.attention.empty() ? "calm" : selection_.attention[0].row->verdict;
    html_.Leaf("h1", {{"class", mood}}, Summary());
    if (!view_.command.empty()) html_.Open("p", {{"class", "command"}}).Leaf("code", {}, view_.command).Close();
    std::string folder = view_.folder_display.empty() ? view_.folder : view_.folder_display;
    if (!folder.empty()) html_.Leaf("p", {{"class", "folder"}}, folder);
    if (options_.hide_sources) html_.Leaf("p", {{"class", "folder"}}, words_.Get(Phrase::kHiddenNote));
    uint64_t steps = 0;
    for (const RankView& rank : view_.ranks) steps = std::max(steps, rank.steps);
    html_.Open("dl", {{"class", "tiles"}});
    Tile(Phrase::kSteps, FormatCount(steps));
    Tile(Phrase::kRanks, FormatCount(view_.ranks.size()));
    Tile(Phrase::kTime, words_.Duration(view_.seconds));
    if (view_.exit_code) {
      Tile(Phrase::kEnded, words_.ExitCode(*view_.exit_code));
    } else if (view_.ranks.size() == 1) {
      Tile(Phrase::kEnded, words_.Ended(view_.ranks[0].ended));
    }
    html_.Close().Open("noscript").Leaf("p", {{"class", "folder"}}, words_.Get(Phrase::kNoScript)).Close().Close();
  }

  // The whole run in one sentence.
  std::string Summary() const {
    if (!selection_.attention.empty()) {
      const VerdictRow& row = *selection_.attention[0].row;
      if (row.verdict == "capacity") return words_.Get(Phrase::kSumCapacity);
      if (row.verdict == "fragmentation") return words_.Get(Phrase::kSumFragmentation);
      if (!row.steps_to_oom) return words_.Get(Phrase::kSumLeak);
      std::string when = row.seconds_to_oom ? words_.Say(Phrase::kAbout, words_.Duration(*row.seconds_to_oom)) : "";
      return words_.Say(Phrase::kSumLeakTime, FormatCount(static_cast<uint64_t>(std::max(0.0, *row.steps_to_oom))), when);
    }
    const auto& rows = view_.document.verdicts;
    if (rows.empty()) return words_.Get(Phrase::kSumNothing);
    // Resident memory alone rarely proves anything: what counts are the pools that the program fills.
    bool unsure = std::any_of(rows.begin(), rows.end(),
                              [](auto& row) { return row.verdict == "insufficient" && row.pool != "host"; });
    if (unsure) return words_.Get(Phrase::kSumUnknown);
    bool told = std::any_of(selection_.findings.begin(), selection_.findings.end(),
                            [](auto* finding) { return finding->severity != Severity::kNote; });
    return words_.Get(told ? Phrase::kSumFindings : Phrase::kSumHealthy);
  }

  void Pools() {
    for (const Card& card : selection_.quiet) cards_.Quiet(card);
    for (const SeriesView* series : selection_.unjudged) cards_.Unjudged(*series);
  }

  void Ranks() {
    html_.Open("div", {{"class", "scroll"}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", words_.Get(Phrase::kPerRank)}});
    html_.Open("table").Open("thead").Open("tr");
    for (Phrase head : {Phrase::kRankHead, Phrase::kRole, Phrase::kPid, Phrase::kSteps, Phrase::kTime, Phrase::kEnded,
                        Phrase::kLost, Phrase::kVerdicts}) {
      html_.Leaf("th", {{"scope", "col"}}, words_.Get(head));
    }
    html_.Close().Close().Open("tbody");
    for (const RankView& rank : view_.ranks) {
      html_.Open("tr").Leaf("th", {{"scope", "row"}}, std::to_string(rank.rank)).Leaf("td", {}, words_.Role(rank.role));
      for (const std::string& cell : {std::to_string(rank.pid), FormatCount(rank.steps), words_.Duration(rank.seconds), words_.Ended(rank.ended),
                                      FormatCount(rank.lost)}) {
        html_.Leaf("td", {}, cell);
      }
      html_.Open("td");
      RankVerdicts(rank.rank);
      html_.Close().Close();
    }
    html_.Close().Close().Close();
  }

  void RankVerdicts(int rank) {
    for (const VerdictRow& row : view_.document.verdicts) {
      if (row.rank != rank) continue;
      html_.Open("span", {{"class", "verdict"}}).Text(words_.Pool(row.pool) + " ");
      cards_.Badge(row.verdict);
      html_.Close().Text(" ");
    }
  }

  void Explanations() {
    std::set<std::string> codes;
    for (const Finding& finding : view_.document.findings) codes.insert(finding.code);
    Section(Phrase::kExplanations, codes.empty(), [&] {
      for (const std::string& code : codes) Explanation(code);
    });
  }

  void Explanation(const std::string& name) {
    const finding::Code* code = finding::FindCode(name);
    html_.Open("details", {{"class", "page"}, {"id", name}}).Open("summary").Leaf("b", {}, name);
    if (code) html_.Text(" " + words_.Pick(std::string(code->title), code->title_zh));
    html_.Close();
    if (const char* page = finding::FindPage(name.c_str())) {
      std::string_view text = page;
      if (text.starts_with("# ")) text.remove_prefix(std::min(text.find('\n'), text.size()));  // the title stands above
      html_.Raw(MarkdownToHtml(text, 2));
    }
    html_.Close();
  }

  void Footer() { html_.Open("footer").Leaf("p", {}, words_.Say(Phrase::kMadeBy, kVersion)).Close(); }

  const RunView& view_;
  const HtmlOptions& options_;
  Words words_;
  Selection selection_;
  HtmlWriter html_;
  CardWriter cards_;
};

}  // namespace

std::string ToHtml(const RunView& view, const HtmlOptions& options) {
  if (!options.hide_sources) return RunPage(view, options).Render();
  RunView hidden = HideSources(view, Words(options.lang));
  return RunPage(hidden, options).Render();
}

}  // namespace lowtide::report
