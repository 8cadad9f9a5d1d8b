#include "report/selection.h"

#include <gtest/gtest.h>

#include "report/sample_view_test.h"

namespace lowtide::report {
namespace {

finding::VerdictRow Row(const std::string& pool, int rank, const std::string& verdict, bool alarm = false) {
  finding::VerdictRow row;
  row.pool = pool;
  row.rank = rank;
  row.verdict = verdict;
  row.alarm = alarm;
  return row;
}

TEST(SelectionTest, TheMostUrgentComesFirst) {
  RunView view;
  view.document.verdicts = {Row("fds", 0, "healthy"), Row("cuda:0", 0, "fragmentation"), Row("cpu", 0, "leak"), Row("shm", 0, "leak", true)};
  Selection selection = Select(view);
  ASSERT_EQ(selection.attention.size(), 3u);
  EXPECT_EQ(selection.attention[0].row->pool, "shm");
  EXPECT_EQ(selection.attention[1].row->pool, "cpu");
  EXPECT_EQ(selection.attention[2].row->pool, "cuda:0");
  EXPECT_EQ(selection.quiet.size(), 1u);
}

TEST(SelectionTest, OneCauseOnSeveralRanksAndPoolsIsOneCard) {
  RunView view = SampleView("x.py");
  Selection selection = Select(view);
  ASSERT_EQ(selection.attention.size(), 1u);
  const Card& card = selection.attention[0];
  EXPECT_EQ(card.holders.size(), 2u) << "those of the card's own rank";
  EXPECT_EQ(RanksOf(card), (std::vector<int>{0, 1}));
  auto others = OthersOf(card);
  ASSERT_EQ(others.size(), 2u);
  EXPECT_EQ(others[0].pool, "cpu");
  EXPECT_EQ(others[0].ranks, std::vector<int>{1});
  EXPECT_EQ(others[1].pool, "heap");
  EXPECT_EQ(others[1].ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(others[1].most, 43000);
  ASSERT_EQ(selection.quiet.size(), 1u) << "file descriptors of both ranks";
  ASSERT_EQ(selection.findings.size(), 1u);
  EXPECT_EQ(selection.findings[0]->code, "LT902");
}

TEST(SelectionTest, DifferentFindingsStayApart) {
  RunView view;
  view.document.verdicts = {Row("cpu", 0, "leak"), Row("cpu", 1, "leak")};
  view.document.verdicts[0].fingerprint = "a";
  view.document.verdicts[1].fingerprint = "b";
  EXPECT_EQ(Select(view).attention.size(), 2u);
}

TEST(SelectionTest, NothingIsLeftOut) {
  RunView view;
  view.document.verdicts = {Row("heap", 0, "leak")};
  view.document.verdicts[0].explained_by = "cpu";  // which is not there
  view.series.push_back(SampleSeries("workers", 0, 20, 1e6, 0, 0));
  Selection selection = Select(view);
  EXPECT_EQ(selection.attention.size(), 1u);
  EXPECT_EQ(selection.unjudged.size(), 1u);
}

}  // namespace
}  // namespace lowtide::report
