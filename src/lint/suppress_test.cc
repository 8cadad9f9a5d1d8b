#include "lint/suppress.h"

#include <gtest/gtest.h>

namespace lowtide::lint {
namespace {

Diagnostic At(const std::string& code, uint32_t line, uint32_t end_line = 0) {
  Diagnostic diagnostic;
  diagnostic.code = code;
  diagnostic.line = line;
  diagnostic.end_line = end_line ? end_line : line;
  return diagnostic;
}

// The codes left, and those of unused suppressions.
std::pair<std::vector<std::string>, std::vector<Diagnostic>> Covered(std::string_view text,
                                                                     std::vector<Diagnostic> all) {
  size_t suppressed = 0;
  auto unused = Suppress(all, FindDirectives(text), text, suppressed);
  std::vector<std::string> left;
  for (const auto& diagnostic : all) left.push_back(diagnostic.code);
  return {left, unused};
}

std::string Applied(std::string text, const Edit& edit) {
  return text.replace(edit.start, edit.end - edit.start, edit.replacement);
}

TEST(Suppress, CodesOnTheLineAloneAndInAList) {
  EXPECT_TRUE(Covered("x = 1  # noqa: LT101\n", {At("LT101", 1)}).first.empty());
  EXPECT_TRUE(Covered("x = 1  #noqa:LT102,LT101\n", {At("LT101", 1), At("LT102", 1)}).first.empty());
  EXPECT_TRUE(Covered("x = 1  # NOQA : E501 lt101 -- because\n", {At("LT101", 1)}).first.empty());
  EXPECT_TRUE(Covered("x = 1  # type: ignore  # noqa\n", {At("LT101", 1)}).first.empty());
  EXPECT_EQ(Covered("x = 1  # noqa: LT102\n", {At("LT101", 1)}).first.size(), 1u);
  EXPECT_EQ(Covered("x = 1\ny = 2  # noqa: LT101\n", {At("LT101", 1)}).first.size(), 1u);
  EXPECT_EQ(Covered("x = 1  # noqablah\n", {At("LT101", 1)}).first.size(), 1u);
}

TEST(Suppress, TheLastLineOfAnExpressionCountsToo) {
  EXPECT_TRUE(Covered("f(\n  a,\n)  # noqa: LT101\n", {At("LT101", 1, 3)}).first.empty());
  EXPECT_TRUE(Covered("x = a + \\\n  b\\\n  # noqa: LT101\n", {At("LT101", 1)}).first.empty());
  EXPECT_TRUE(Covered("x = '''\n\n'''  # noqa: LT101\n", {At("LT101", 1)}).first.empty());
}

TEST(Suppress, OnlyCommentsCount) {
  EXPECT_EQ(Covered("x = '# noqa: LT101'\n", {At("LT101", 1)}).first.size(), 1u);
  EXPECT_EQ(Covered("x = '''\n# lowtide: noqa\n'''\n", {At("LT101", 1)}).first.size(), 1u);
}

TEST(Suppress, WholeFile) {
  EXPECT_TRUE(Covered("x = 1\n# lowtide: noqa\n", {At("LT101", 1)}).first.empty());
  EXPECT_EQ(Covered("# lowtide: noqa: LT102\nx = 1\n", {At("LT101", 2), At("LT102", 2)}).first.size(), 1u);
}

TEST(Suppress, WhatCoversNothingIsReportedAndCanBeRemoved) {
  struct {
    std::string text, fixed;
  } cases[] = {
      {"x = 1  # noqa: LT101\n", "x = 1\n"},
      {"x = 1  # noqa: LT101, LT105\n", "x = 1  # noqa: LT105\n"},
      {"x = 1  # noqa: LT105, LT101\n", "x = 1  # noqa: LT105\n"},
      {"x = 1  # noqa: E501, LT101\n", "x = 1  # noqa: E501\n"},
      {"# lowtide: noqa: LT101\r\nx = 1\r\n", "x = 1\r\n"},
      {"x = 1  # noqa: LT101 # type: ignore\n", "x = 1  # type: ignore\n"},
  };
  for (const auto& one : cases) {
    auto [left, unused] = Covered(one.text, {At("LT105", 1)});
    ASSERT_EQ(unused.size(), 1u) << one.text;
    EXPECT_EQ(unused[0].code, kUnusedSuppression);
    EXPECT_EQ(Applied(one.text, unused[0].fix->edits[0]), one.fixed);
    EXPECT_EQ(one.text.substr(unused[0].start, 5), one.text[unused[0].start] == '#' ? "# low" : "LT101")
        << one.text;
  }
}

TEST(Suppress, OtherCheckersSuppressionsAreNotOurs) {
  EXPECT_TRUE(Covered("x = 1  # noqa\ny = 2  # noqa: E501\n", {}).second.empty());
  EXPECT_TRUE(Covered("x = 1  # noqa: LT101, LT950\n", {}).second.empty());
}

TEST(Suppress, AddingOne) {
  struct {
    std::string text, result;
    uint32_t line;
  } cases[] = {
      {"x = 1\ny = 2\n", "x = 1  # noqa: LT101\ny = 2\n", 1},
      {"x = 1\ny = 2", "x = 1\ny = 2  # noqa: LT101", 2},
      {"x = 1  # noqa: E501\r\n", "x = 1  # noqa: E501, LT101\r\n", 1},
      {"x = '''a\nb'''\n", "x = '''a\nb'''  # noqa: LT101\n", 1},
      {"x = 1 + \\\n  2\n", "x = 1 + \\\n  2  # noqa: LT101\n", 1},
      {"f(a,\n  b)\n", "f(a,  # noqa: LT101\n  b)\n", 1},
      {"", "  # noqa: LT101", 1},
  };
  for (const auto& one : cases) {
    std::string result = Applied(one.text, AddSuppression(one.text, one.line, "LT101"));
    EXPECT_EQ(result, one.result);
    EXPECT_TRUE(one.text.empty() || Covered(result, {At("LT101", one.line)}).first.empty()) << result;
  }
}

TEST(Suppress, BrokenSourceIsSurvived) {
  for (const char* text : {"'''", "'", "\\", "# noqa:", "# lowtide", "# lowtide:", "#", "# no", "x = 'a\\",
                           "# lowtide: noqa: "}) {
    FindDirectives(text);
    AddSuppression(text, 7, "LT101");
  }
}

}  // namespace
}  // namespace lowtide::lint
