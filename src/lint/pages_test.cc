// The rules' pages are their tests: every ```python block of docs/findings/LT1xx.md is a file of its own. Where a line
// ends in the comment `# LTNNN`, that page's rule must report there; nowhere else may it report.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "finding/catalogue.h"
#include "finding/pages.h"
#include "lint/lint.h"

namespace lowtide::lint {
namespace {

std::vector<std::string> PythonBlocks(const std::string& markdown) {
  std::vector<std::string> blocks;
  const std::string open = "```python\n", close = "```";
  for (size_t at = markdown.find(open); at != std::string::npos; at = markdown.find(open, at)) {
    at += open.size();
    size_t end = markdown.find(close, at);
    blocks.push_back(markdown.substr(at, end - at));
    at = end;
  }
  return blocks;
}

std::set<int> ExpectedLines(const std::string& block, const std::string& code) {
  std::set<int> lines;
  int line = 1;
  for (size_t at = 0; at < block.size(); ++line) {
    size_t end = block.find('\n', at);
    std::string text = block.substr(at, end - at);
    if (text.ends_with("# " + code)) lines.insert(line);
    at = end + 1;
  }
  return lines;
}

// U+4E00 to U+9FFF, as UTF-8.
bool HasChinese(const std::string& text) {
  for (size_t i = 0; i + 2 < text.size(); ++i) {
    uint8_t first = static_cast<uint8_t>(text[i]);
    if (first >= 0xE4 && first <= 0xE9 && (text[i + 1] & 0xC0) == 0x80 && (text[i + 2] & 0xC0) == 0x80) return true;
  }
  return false;
}

std::set<int> ReportedLines(const std::string& block, const std::string& code) {
  RuleSet rules = RuleSet::None();
  rules.Add(code);
  ModuleFacts facts = Analyze({"example.py", block});
  Index index({&facts});
  std::set<int> lines;
  for (const Diagnostic& diagnostic : Resolve(facts, index, rules)) {
    EXPECT_EQ(diagnostic.code, code);
    EXPECT_FALSE(diagnostic.message.empty());
    EXPECT_FALSE(diagnostic.help.empty());
    EXPECT_TRUE(HasChinese(diagnostic.message_zh)) << code << ": " << diagnostic.message_zh;
    EXPECT_TRUE(HasChinese(diagnostic.help_zh)) << code << ": " << diagnostic.help_zh;
    if (diagnostic.fix) EXPECT_TRUE(HasChinese(diagnostic.fix->title_zh)) << code << ": " << diagnostic.fix->title;
    lines.insert(static_cast<int>(diagnostic.line));
  }
  return lines;
}

TEST(Pages, EveryRuleHasOneWithAnExampleAndACure) {
  for (int i = 0; i < kRuleCount; ++i) {
    const char* page = finding::FindPage(kRules[i].code);
    ASSERT_NE(page, nullptr) << kRules[i].code;
    std::string text(page);
    for (const char* heading : {"## What", "## Why", "## Example", "## Use instead", "## How it decides", "## False alarms"}) {
      EXPECT_NE(text.find(heading), std::string::npos) << kRules[i].code << " lacks " << heading;
    }
    std::vector<std::string> blocks = PythonBlocks(text);
    ASSERT_GE(blocks.size(), 2u) << kRules[i].code;
    EXPECT_FALSE(ExpectedLines(blocks[0], kRules[i].code).empty()) << kRules[i].code << ": the example expects nothing";
    EXPECT_TRUE(ExpectedLines(blocks[1], kRules[i].code).empty()) << kRules[i].code << ": the cure expects a finding";
  }
}

TEST(Pages, ExamplesAreReportedAndLookAlikesAreNot) {
  for (int i = 0; i < kRuleCount; ++i) {
    const char* page = finding::FindPage(kRules[i].code);
    if (!page) continue;
    for (const std::string& block : PythonBlocks(page)) {
      EXPECT_EQ(ReportedLines(block, kRules[i].code), ExpectedLines(block, kRules[i].code)) << kRules[i].code << " on\n" << block;
    }
  }
}

// Titles and messages speak Chinese too: whatever a rule can report, its page's examples report.
TEST(Pages, EveryRuleSpeaksChinese) {
  for (int i = 0; i < kRuleCount; ++i) {
    const finding::Code* code = finding::FindCode(kRules[i].code);
    ASSERT_NE(code, nullptr) << kRules[i].code;
    EXPECT_STREQ(code->name, kRules[i].name);
    EXPECT_TRUE(HasChinese(code->title_zh)) << kRules[i].code;
  }
}

// A fix that says it is safe must leave nothing for the rule to report, and parse as before.
TEST(Pages, SafeFixesCure) {
  for (int i = 0; i < kRuleCount; ++i) {
    const char* page = finding::FindPage(kRules[i].code);
    if (!page) continue;
    std::string block = PythonBlocks(page).at(0);
    RuleSet rules = RuleSet::None();
    rules.Add(kRules[i].code);
    ModuleFacts facts = Analyze({"example.py", block});
    Index index({&facts});
    std::vector<Diagnostic> found = Resolve(facts, index, rules);
    if (found.size() != 1 || !found[0].fix || !found[0].fix->safe) continue;
    for (auto edit = found[0].fix->edits.rbegin(); edit != found[0].fix->edits.rend(); ++edit) {
      block.replace(edit->start, edit->end - edit->start, edit->replacement);
    }
    EXPECT_TRUE(ReportedLines(block, kRules[i].code).empty()) << kRules[i].code << " after its fix:\n" << block;
  }
}

}  // namespace
}  // namespace lowtide::lint
