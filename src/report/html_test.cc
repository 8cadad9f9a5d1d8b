#include "report/html.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "report/html_page.h"
#include "report/html_series.h"
#include "report/sample_view_test.h"

namespace lowtide::report {
namespace {

class HtmlTest : public testing::Test {
 protected:
  HtmlTest() : source_(testing::TempDir() + "lowtide_html_secret_name.py") {
    std::ofstream(source_) << "def log(logits):\n    if keep:\n        history['logits'].append(logits)\n    return 1\n";
  }
  ~HtmlTest() override { std::filesystem::remove(source_); }

  std::string source_;
};

bool Contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// The page without style, script and data: what a reader sees.
std::string Body(const std::string& page) {
  size_t begin = page.find("<body>"), end = page.find("<script");
  return page.substr(begin, end - begin);
}

std::vector<std::string> Matches(const std::string& text, const char* pattern) {
  std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) found.push_back(at->str());
  return found;
}

TEST_F(HtmlTest, ShowsWhatTheTerminalShows) {
  std::string page = Body(ToHtml(SampleView(source_), {}));
  for (const char* part : {"This run leaks memory: 868 steps until out of memory, about 3 min 22 s.", "train.py --epochs 3",
                           "+41.0 KB/step", "95 %: 40.8 KB/step to 41.1 KB/step", "99.91 %", "the lower edge rose in 19 of 19 stretches",
                           "train.history[&#39;logits&#39;][*]", "holds 16.4 MB in 400 objects", "through the autograd graph",
                           ":3</div>", "history[&#39;logits&#39;].append(logits)", "<code>logits.detach()</code>", "C heap",
                           "file descriptors", "LT902", "2 records of rank0.ring are torn"}) {
    EXPECT_TRUE(Contains(page, part)) << part;
  }
}

TEST_F(HtmlTest, OneCauseIsOneCard) {
  std::string page = Body(ToHtml(SampleView(source_), {}));
  EXPECT_EQ(Matches(page, "<article class=\"card leak\"").size(), 1u) << "two ranks and the heap share one cause";
  EXPECT_TRUE(Contains(page, "data-series=\"0,1,3,4\"") || Contains(page, "data-series=\"0,3,1,4\"")) << page;
}

TEST_F(HtmlTest, ChineseHasNoEnglishSentences) {
  HtmlOptions options;
  options.lang = "zh";
  std::string page = Body(ToHtml(SampleView(source_), options));
  page.resize(page.find("代码含义"));  // the pages of the codes are in English
  EXPECT_TRUE(Contains(page, "这次运行存在内存泄漏"));
  EXPECT_TRUE(Contains(page, "下沿在 19 段中的 19 段上升"));
  for (const char* part : {"This run", "the lower edge", "Confidence", "Per rank", "holds "}) EXPECT_FALSE(Contains(page, part)) << part;
}

TEST_F(HtmlTest, NothingOfTheInputBecomesMarkup) {
  const std::string evil = "</script><img src=x onerror=alert(1)>\"'`<!--\xff";
  RunView view = SampleView(source_);
  view.command = view.folder = view.folder_display = evil;
  for (auto& rank : view.ranks) rank.role = rank.ended = evil;
  for (auto& series : view.series) series.pool = series.pool == "cpu" ? evil : series.pool;
  for (auto& row : view.document.verdicts) {
    row.reason = evil;
    if (row.pool == "cpu") row.pool = evil;
    if (row.pool == "fds") row.verdict = evil;
    row.phase = evil;
  }
  for (auto& holder : view.document.holders) holder.path = holder.root = holder.type = holder.file = evil;
  for (auto& finding : view.document.findings) {
    finding.code = finding.message = finding.help = evil;
    finding.fix = evil;
    for (auto& where : finding.where) where.file = where.object_path = evil;
  }
  for (bool hide : {false, true}) {
    HtmlOptions options;
    options.hide_sources = hide;
    std::string page = ToHtml(view, options);
    EXPECT_TRUE(Matches(page, "<img").empty());
    EXPECT_TRUE(Matches(page, "<!--").empty());
    EXPECT_EQ(Matches(page, "</script>").size(), 2u) << "the data and the script, nothing else";
    std::string unquoted = std::regex_replace(Body(page), std::regex("\"[^\"]*\""), "");
    EXPECT_TRUE(Matches(unquoted, "<[a-z][^>]* on[a-z]+=").empty());
    for (const std::string& tag : Matches(page, "<[a-z][^<>]*>")) {
      EXPECT_EQ(Matches(tag, "\"").size() % 2, 0u) << tag;
    }
    EXPECT_FALSE(Contains(page, "\xff"));
  }
}

TEST_F(HtmlTest, LoadsNothing) {
  std::string page = ToHtml(SampleView(source_), {});
  EXPECT_TRUE(Contains(page, "Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-"));
  EXPECT_FALSE(Contains(page, "unsafe"));
  EXPECT_TRUE(Matches(page, "<(script|img|iframe|link|object|embed)[^>]* (src|data)=").empty());
  EXPECT_TRUE(Matches(page, "(@import|url\\((?!#))").empty());
  EXPECT_TRUE(Matches(page, "<link[^>]*href=\"(?!data:)").empty());
  EXPECT_TRUE(Matches(Body(page), " style=").empty()) << "the policy forbids style attributes";
}

TEST_F(HtmlTest, HiddenSourcesLeaveNoTrace) {
  HtmlOptions options;
  options.hide_sources = true;
  std::string page = ToHtml(SampleView(source_), options);
  for (const std::string& secret : {std::string("lowtide_html_secret_name"), source_, std::string("train.py"), std::string("logits"),
                                    std::string("history"), std::string("epochs"), std::string("lowtide-runs"),
                                    std::string("train.cache"), std::string("rank0.ring")}) {
    EXPECT_FALSE(Contains(page, secret)) << secret;
  }
  EXPECT_TRUE(Contains(page, "+41.0 KB/step"));
  EXPECT_TRUE(Contains(page, "holds 16.4 MB in 400 objects"));
}

TEST_F(HtmlTest, EmptyRunsAreTold) {
  std::string page = Body(ToHtml(RunView{}, {}));
  EXPECT_TRUE(Contains(page, "Nothing was recorded."));
}

TEST(ThinTest, KeepsExtremesAndEnds) {
  SeriesView series = SampleSeries("cpu", 0, 1'000'000, 1e9, 100, 500'000);
  series.points[123'456].value = 9e9;
  series.points[777'777].value = 1;
  auto thin = Thin(series.points, 3000);
  EXPECT_LE(thin.size(), 3000u);
  EXPECT_GE(thin.size(), 1500u);
  EXPECT_EQ(thin.front().step, 1u);
  EXPECT_EQ(thin.back().step, 1'000'000u);
  auto has = [&](double value) { return std::any_of(thin.begin(), thin.end(), [&](auto& point) { return point.value == value; }); };
  EXPECT_TRUE(has(9e9)) << "the peak";
  EXPECT_TRUE(has(1)) << "the dip";
  EXPECT_TRUE(std::is_sorted(thin.begin(), thin.end(), [](auto& a, auto& b) { return a.step < b.step; }));
}

TEST(ThinTest, ShortOnesStay) {
  SeriesView series = SampleSeries("cpu", 0, 100, 1e6, 0, 0);
  EXPECT_EQ(Thin(series.points, 3000).size(), 100u);
}

TEST(ThinTest, GapsInTheStepsAreNoTrouble) {
  SeriesView series = SampleSeries("cpu", 0, 5000, 1e6, 0, 0);
  for (auto& point : series.points) point.step = point.step < 4000 ? point.step : point.step * 1'000'000'000ull;
  auto thin = Thin(series.points, 1000);
  EXPECT_LE(thin.size(), 1000u);
  EXPECT_EQ(thin.back().step, series.points.back().step);
}

TEST_F(HtmlTest, AMillionPointsMakeASmallPage) {
  RunView view = SampleView(source_);
  view.series[0] = SampleSeries("cpu", 0, 1'000'000, 1e9, 100, 3);
  EXPECT_LT(ToHtml(view, {}).size(), 400'000u);
}

TEST(EscapeHtmlTest, EscapesAndRepairs) {
  EXPECT_EQ(EscapeHtml("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(EscapeHtml("内存 ok"), "内存 ok");
  EXPECT_EQ(EscapeHtml("\xc3("), "\xEF\xBF\xBD(");
  EXPECT_EQ(EscapeHtml(std::string_view("\0\x1b[", 3)), "\xEF\xBF\xBD\xEF\xBF\xBD[");
}

}  // namespace
}  // namespace lowtide::report
