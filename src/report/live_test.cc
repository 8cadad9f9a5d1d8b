#include "report/live.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "report/columns.h"
#include "report/plot.h"
#include "report/sample_view_test.h"

namespace lowtide::report {
namespace {

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

bool Contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(ColumnsTest, WideCharactersTakeTwo) {
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("内存 x"), 6);
  EXPECT_EQ(DisplayWidth("e\xCC\x81"), 1) << "a combining accent";
  EXPECT_EQ(FitLeft("内存泄漏", 5), "内存 ") << "half a character does not fit";
  EXPECT_EQ(FitRight("ab", 4), "  ab");
  EXPECT_EQ(CutTo("abcdef", 3), "abc");
}

TEST(ColumnsTest, NothingReachesTheTerminalThatCouldSteerIt) {
  EXPECT_EQ(CutTo("a\x1b[2J\r\n\x7f\xff", 80), "a?[2J????");
  EXPECT_EQ(CutTo("\xC2\x9B" "31m", 80), "?31m") << "a C1 control";
}

TEST(ColumnsTest, WrapsAtSpaces) {
  EXPECT_EQ(WrapTo("one two three four", 9), (std::vector<std::string>{"one two", "three", "four"}));
  EXPECT_EQ(WrapTo("abcdefgh", 3), (std::vector<std::string>{"abc", "def", "gh"}));
  EXPECT_EQ(WrapTo("内存泄漏", 4), (std::vector<std::string>{"内存", "泄漏"}));
  EXPECT_TRUE(WrapTo("", 4).empty());
}

TEST(LiveTest, OneRowPerRankAndPool) {
  Terminal terminal;
  terminal.width = 120;
  std::string text = Joined(LiveLines(SampleView("x.py"), terminal, "en", 100));
  for (const char* part : {"train.py --epochs 3", "step 400", "   0  CPU tensors", "   1  CPU tensors", "   1  file descriptors",
                           "+41.0 KB/step", "LEAK, 868 steps left", "healthy", "the lower edge rose in 19 of 19 stretches"}) {
    EXPECT_TRUE(Contains(text, part)) << part << "\n" << text;
  }
}

TEST(LiveTest, NoLineIsWiderThanTheTerminal) {
  RunView view = SampleView("x.py");
  view.command = std::string(300, 'x') + "内存";
  for (const char* lang : {"en", "zh"}) {
    for (int width : {20, 40, 61, 80, 100, 200}) {
      for (bool unicode : {true, false}) {
        Terminal terminal;
        terminal.width = width;
        terminal.unicode = unicode;
        for (const std::string& line : LiveLines(view, terminal, lang, 50)) EXPECT_LE(DisplayWidth(line), width) << line;
      }
    }
  }
}

TEST(LiveTest, CalmRowsGoFirstWhenThereIsNoRoom) {
  Terminal terminal;
  terminal.width = 100;
  auto lines = LiveLines(SampleView("x.py"), terminal, "en", 9);
  EXPECT_LE(lines.size(), 9u);
  std::string text = Joined(lines);
  EXPECT_TRUE(Contains(text, "LEAK")) << text;
  EXPECT_FALSE(Contains(text, "healthy")) << text;
  EXPECT_TRUE(Contains(text, "2 more") || Contains(text, "3 more")) << text;
}

TEST(LiveTest, WaitsForTheFirstStep) {
  EXPECT_TRUE(Contains(Joined(LiveLines(RunView{}, Terminal{}, "en", 20)), "waiting for the first step"));
}

TEST(PlotTest, ShowsRangeStepsAndLowerEdge) {
  SeriesView series = SampleSeries("cpu", 0, 400, 12e6, 40960, 3);
  Terminal terminal;
  terminal.unicode = false;
  std::string plot = PlotSeries(series, terminal);
  EXPECT_TRUE(Contains(plot, "28.5 MB |")) << plot;
  EXPECT_TRUE(Contains(plot, "12.0 MB |_")) << plot;
  EXPECT_TRUE(Contains(plot, "400\n")) << plot;
  EXPECT_EQ(std::count(plot.begin(), plot.end(), '\n'), 7);
}

TEST(PlotTest, OddSeriesAreDrawn) {
  Terminal terminal;
  EXPECT_EQ(PlotSeries(SeriesView{"cpu", 0, {{1, 5, 5}}, {}, {}}, terminal), "");
  EXPECT_FALSE(PlotSeries(SeriesView{"cpu", 0, {{1, 5, 5}, {2, 5, 5}}, {}, {}}, terminal).empty()) << "flat";
  EXPECT_FALSE(PlotSeries(SeriesView{"cpu", 0, {{7, 5, 5}, {7, NAN, NAN}, {7, 9, 5}}, {}, {}}, terminal).empty()) << "one step, a gap";
  EXPECT_EQ(PlotSeries(SeriesView{"cpu", 0, {{1, NAN, NAN}, {2, NAN, NAN}}, {}, {}}, terminal), "");
}

TEST(SparklineTest, ScalesToItsRange) {
  Terminal terminal;
  EXPECT_EQ(Sparkline({0, 7}, 2, terminal), "▁█");
  EXPECT_EQ(Sparkline({0, 7}, 4, terminal), "  ▁█");
  EXPECT_EQ(Sparkline({0, 1, 2, 7}, 2, terminal), "▂█") << "the largest of a column's values";
  terminal.unicode = false;
  EXPECT_EQ(Sparkline({0, 7}, 2, terminal), "_#");
}

}  // namespace
}  // namespace lowtide::report
