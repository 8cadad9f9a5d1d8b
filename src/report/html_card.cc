#include "report/html_card.h"

#include <algorithm>
#include <set>

#include "base/units.h"
#include "finding/catalogue.h"
#include "report/markdown.h"
#include "report/source.h"

namespace lowtide::report {

using finding::Finding;
using finding::HolderRow;
using finding::Severity;
using finding::VerdictRow;

void CardWriter::Badge(const std::string& verdict) {
  html_.Leaf("span", {{"class", "badge " + verdict}}, words_.Verdict(verdict));
}

void CardWriter::Attention(const Card& card) {
  const VerdictRow& row = *card.row;
  std::string id = fmt::format("card-{}", ++cards_);
  html_.Open("article", {{"class", "card " + row.verdict}, {"aria-labelledby", id}});
  html_.Open("h3", {{"id", id}});
  Heading(card);
  html_.Close();
  std::string reason = words_.Pick(row.reason, row.reason_zh);
  std::string message = card.finding ? words_.Pick(card.finding->message, card.finding->message_zh) : "";
  if (!message.empty() && message != reason) html_.Open("p", {{"class", "message"}}).Raw(SpansToHtml(message)).Close();
  Tiles(row);
  Chart(SeriesOf(card));
  html_.Open("dl", {{"class", "facts"}});
  Fact(Phrase::kWhy, SpansToHtml(reason));
  Holders(card);
  Also(card);
  if (card.finding) Fact(Phrase::kNext, SpansToHtml(words_.Pick(card.finding->help, card.finding->help_zh)));
  html_.Close();
  if (card.finding && card.finding->fix) html_.Leaf("pre", {{"class", "fix"}, {"tabindex", "0"}}, *card.finding->fix);
  html_.Close();
}

std::vector<const SeriesView*> CardWriter::SeriesOf(const Card& card) const {
  std::vector<const SeriesView*> series{card.series};
  for (const VerdictRow* other : card.also) series.push_back(FindSeries(view_, other->pool, other->rank));
  return series;
}

void CardWriter::Heading(const Card& card) {
  Badge(card.row->verdict);
  html_.Text(" " + words_.Pool(card.row->pool));
  if (many_ranks_) html_.Text(words_.Say(Phrase::kOnRank, card.row->rank));
  Code(card.finding);
}

void CardWriter::Code(const Finding* finding) {
  if (!finding) return;
  const finding::Code* code = finding::FindCode(finding->code);
  html_.Text(" ");
  html_.Leaf("a", {{"class", "code"}, {"href", "#" + finding->code},
                   {"title", code ? words_.Pick(std::string(code->title), code->title_zh) : ""}},
             finding->code);
}

void CardWriter::Tile(Phrase label, const std::string& value, const std::string& detail) {
  html_.Open("div").Leaf("dt", {}, words_.Get(label)).Leaf("dd", {}, value);
  if (!detail.empty()) html_.Leaf("dd", {{"class", "detail"}}, detail);
  html_.Close();
}

void CardWriter::Tiles(const VerdictRow& row) {
  html_.Open("dl", {{"class", "tiles"}});
  if (row.bytes_per_step) {
    std::string range;
    if (row.interval) {
      range = words_.Say(Phrase::kRange95, words_.Rate(row.pool, row.interval->first, false),
                         words_.Rate(row.pool, row.interval->second, false));
    }
    Tile(Phrase::kGrowth, words_.Rate(row.pool, *row.bytes_per_step, true), range);
  }
  if (row.confidence > 0) {
    Tile(Phrase::kSure, fmt::format("{:.4g} %", row.confidence * 100), words_.Say(Phrase::kSeenOver, FormatCount(row.steps_seen)));
  }
  if (row.onset_step) {
    std::string during = row.phase && *row.phase != "step" ? words_.Say(Phrase::kDuring, words_.During(*row.phase)) : "";
    Tile(Phrase::kSince, FormatCount(*row.onset_step), during);
  }
  if (row.steps_to_oom) {
    std::string when = row.seconds_to_oom ? words_.Say(Phrase::kAboutTime, words_.Duration(*row.seconds_to_oom)) : "";
    Tile(Phrase::kTimeLeft, FormatCount(static_cast<uint64_t>(std::max(0.0, *row.steps_to_oom))), when);
  }
  html_.Close();
}

std::string CardWriter::SeriesIds(const std::vector<const SeriesView*>& series) const {
  std::string ids;
  std::set<const SeriesView*> seen{nullptr};
  for (const SeriesView* one : series) {
    if (seen.insert(one).second) ids += (ids.empty() ? "" : ",") + std::to_string(one - view_.series.data());
  }
  return ids;
}

void CardWriter::Chart(const std::vector<const SeriesView*>& series) {
  std::string ids = SeriesIds(series);
  if (!ids.empty()) html_.Open("figure", {{"class", "chart"}, {"data-series", ids}}).Close();
}

void CardWriter::Fact(Phrase label, const std::string& html) {
  if (html.empty()) return;
  html_.Leaf("dt", {}, words_.Get(label)).Open("dd").Raw(html).Close();
}

void CardWriter::Also(const Card& card) {
  if (card.also.empty()) return;
  html_.Leaf("dt", {}, words_.Get(Phrase::kSame)).Open("dd").Open("ul", {{"class", "also"}});
  for (const Others& others : OthersOf(card)) {
    html_.Open("li").Text(words_.Pool(others.pool) + (many_ranks_ ? words_.OnRanks(others.ranks) : ""));
    std::string rates = words_.Rates(others.pool, others.least, others.most);
    if (!rates.empty()) html_.Text(" ").Leaf("b", {}, rates);
    html_.Close();
  }
  html_.Close().Close();
}

void CardWriter::Holders(const Card& card) {
  const std::string unnamed = words_.Pick(card.row->unnamed, card.row->unnamed_zh);
  if (card.holders.empty() && unnamed.empty()) return;
  html_.Leaf("dt", {}, words_.Get(Phrase::kWho)).Open("dd");
  if (card.holders.empty()) html_.Text(unnamed);
  for (size_t i = 0; i < card.holders.size(); ++i) Holder(*card.holders[i], i == 0);
  html_.Close();
}

void CardWriter::Holder(const HolderRow& holder, bool first) {
  std::string rate = holder.bytes_per_step > 0 ? ", " + words_.Rate(holder.pool, holder.bytes_per_step, true) : "";
  html_.Open("div", {{"class", first ? "holder first" : "holder"}}).Leaf("code", {{"class", "path"}}, holder.path).Text(" ");
  html_.Text(words_.Say(Phrase::kHoldsShort, FormatBytes(static_cast<double>(holder.retained_bytes)), words_.Objects(holder.objects), rate,
                        holder.via_autograd ? words_.Get(Phrase::kViaAutograd) : ""));
  if (!holder.root.empty()) html_.Leaf("div", {{"class", "root"}}, words_.Say(Phrase::kRoot, holder.root));
  if (first && !holder.file.empty()) Place(holder.file, holder.line);
  html_.Close();
}

// The file and line, and two lines of source around it.
void CardWriter::Place(const std::string& file, int line) {
  html_.Leaf("div", {{"class", "place"}}, line > 0 ? fmt::format("{}:{}", file, line) : file);
  std::vector<SourceRow> rows = SourceAround(file, line, 2);
  if (rows.empty()) return;
  html_.Open("pre", {{"class", "source"}, {"tabindex", "0"}});
  for (const SourceRow& row : rows) {
    std::string text = fmt::format("{:>5}  {}\n", row.line, row.text);
    row.line == line ? html_.Leaf("mark", {}, text) : html_.Leaf("span", {}, text);
  }
  html_.Close();
}

void CardWriter::Quiet(const Card& card) {
  const VerdictRow& row = *card.row;
  std::string text = words_.Pick(row.reason, row.reason_zh);
  if (row.steps_needed) text += fmt::format(" ({}: {})", words_.Get(Phrase::kNeeded), FormatCount(*row.steps_needed));
  std::string name = words_.Pool(row.pool) + (many_ranks_ ? words_.OnRanks(RanksOf(card)) : "");
  Line(row.verdict, name, card.finding, text, SeriesOf(card));
}

void CardWriter::Unjudged(const SeriesView& series) {
  std::string name = words_.Pool(series.pool) + (many_ranks_ ? words_.OnRanks({series.rank}) : "");
  Line("", name, nullptr, words_.Get(Phrase::kNotJudged), {&series});
}

void CardWriter::Line(const std::string& verdict, const std::string& name, const Finding* finding, const std::string& text,
                      const std::vector<const SeriesView*>& series) {
  std::string ids = SeriesIds(series);
  html_.Open(ids.empty() ? "div" : "details", {{"class", "pool"}}).Open(ids.empty() ? "div" : "summary", {{"class", "line"}});
  html_.Open("span", {{"class", "name"}});
  if (!verdict.empty()) Badge(verdict);
  html_.Text(" " + name);
  Code(finding);
  html_.Close().Open("span", {{"class", "reason"}}).Raw(SpansToHtml(text)).Close();
  std::string first = ids.substr(0, ids.find(','));
  if (!ids.empty()) html_.Open("span", {{"class", "spark"}, {"data-spark", first}, {"aria-hidden", "true"}}).Close();
  html_.Close();
  Chart(series);
  html_.Close();
}

void CardWriter::Standalone(const Finding& finding) {
  std::string severity = finding::SeverityName(finding.severity);
  html_.Open("article", {{"class", "card finding " + severity}}).Open("h3");
  html_.Leaf("span", {{"class", "badge " + severity}}, words_.Severity(finding.severity));
  Code(&finding);
  html_.Close().Open("p", {{"class", "message"}}).Raw(SpansToHtml(words_.Pick(finding.message, finding.message_zh))).Close();
  for (const auto& where : finding.where) {
    if (!where.object_path.empty()) html_.Open("p").Leaf("code", {{"class", "path"}}, where.object_path).Close();
    if (!where.file.empty()) Place(where.file, where.line);
  }
  html_.Open("dl", {{"class", "facts"}});
  Fact(Phrase::kNext, SpansToHtml(words_.Pick(finding.help, finding.help_zh)));
  html_.Close();
  if (finding.fix) html_.Leaf("pre", {{"class", "fix"}, {"tabindex", "0"}}, *finding.fix);
  html_.Close();
}

}  // namespace lowtide::report
