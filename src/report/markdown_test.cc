#include "report/markdown.h"

#include <gtest/gtest.h>

namespace lowtide::report {
namespace {

constexpr const char* kPage =
    "# LT101 name\n\n## What\nOne line with `code` and **bold** words,\nand a second <b>.\n\n```python\nx = [\n\n    1]\n```\n"
    "- first item\n  goes on\n- second [site](https://a.example)\n\n1. one\n2. two\n";

TEST(MarkdownTest, ParsesBlocks) {
  auto blocks = ParseMarkdown(kPage);
  ASSERT_EQ(blocks.size(), 8u);
  EXPECT_EQ(blocks[0].level, 1);
  EXPECT_EQ(blocks[1].text, "What");
  EXPECT_EQ(blocks[2].text, "One line with `code` and **bold** words, and a second <b>.");
  EXPECT_EQ(blocks[3].text, "x = [\n\n    1]\n");
  EXPECT_EQ(blocks[4].text, "first item goes on");
  EXPECT_EQ(blocks[7].marker, "2.");
}

TEST(MarkdownTest, HtmlIsEscaped) {
  std::string html = MarkdownToHtml(kPage, 3);
  EXPECT_NE(html.find("<h4>What</h4>"), std::string::npos);
  EXPECT_NE(html.find("<code>code</code> and <strong>bold</strong>"), std::string::npos);
  EXPECT_NE(html.find("second &lt;b&gt;."), std::string::npos);
  EXPECT_NE(html.find("<ul>\n<li>first item goes on</li>\n<li>second <a href=\"https://a.example\""), std::string::npos);
  EXPECT_NE(html.find("</ul>\n<ol>\n<li>one</li>"), std::string::npos);
  EXPECT_EQ(SpansToHtml("[x](javascript:alert(1))").find("<a"), std::string::npos);
}

TEST(MarkdownTest, UnclosedMarksAreText) {
  EXPECT_EQ(SpansToHtml("a `b **c [d"), "a `b **c [d");
  EXPECT_EQ(ParseMarkdown("```\nnever closed\n").back().text, "never closed\n");
}

TEST(MarkdownTest, TerminalWrapsAndIndents) {
  Terminal terminal;
  terminal.width = 40;
  std::string text = MarkdownToTerminal(kPage, terminal);
  EXPECT_EQ(text,
            "LT101 name\n\nWhat\n  One line with `code` and bold words,\n  and a second <b>.\n\n    x = [\n\n        1]\n\n"
            "  - first item goes on\n  - second site (https://a.example)\n  1. one\n  2. two\n");
}

TEST(MarkdownTest, ColourMarksHeadingsAndCode) {
  Terminal terminal;
  terminal.color = true;
  std::string text = MarkdownToTerminal("## What\nsee `x`\n```\ny\n```\n", terminal);
  EXPECT_EQ(text, "\x1b[1mWhat\x1b[0m\n  see \x1b[36mx\x1b[0m\n\n    \x1b[2my\x1b[0m\n");
}

}  // namespace
}  // namespace lowtide::report
