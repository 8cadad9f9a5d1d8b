#pragma once

#include "report/html_page.h"
#include "report/phrases.h"
#include "report/selection.h"

namespace lowtide::report {

// Writes the verdicts and findings of a run as HTML.
class CardWriter {
 public:
  CardWriter(const RunView& view, const Words& words, HtmlWriter& html)
      : view_(view), words_(words), html_(html), many_ranks_(view.ranks.size() > 1) {}

  void Attention(const Card& card);           // a card with figures, chart, holders and advice
  void Quiet(const Card& card);               // one line that opens to a chart
  void Unjudged(const SeriesView& series);    // the same for a series without a verdict
  void Standalone(const finding::Finding& finding);

  // The badge of a verdict, for tables.
  void Badge(const std::string& verdict);

 private:
  void Heading(const Card& card);
  void Code(const finding::Finding* finding);
  void Tiles(const finding::VerdictRow& row);
  void Tile(Phrase label, const std::string& value, const std::string& detail);
  void Chart(const std::vector<const SeriesView*>& series);
  void Fact(Phrase label, const std::string& html);
  void Also(const Card& card);
  void Holders(const Card& card);
  void Holder(const finding::HolderRow& holder, bool first);
  void Place(const std::string& file, int line);
  // One line of text that opens to charts; `name` is the pool and its ranks.
  void Line(const std::string& verdict, const std::string& name, const finding::Finding* finding, const std::string& text,
            const std::vector<const SeriesView*>& series);
  std::vector<const SeriesView*> SeriesOf(const Card& card) const;
  std::string SeriesIds(const std::vector<const SeriesView*>& series) const;

  const RunView& view_;
  const Words& words_;
  HtmlWriter& html_;
  bool many_ranks_;
  int cards_ = 0;
};

}  // namespace lowtide::report
