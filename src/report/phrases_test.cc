#include "report/phrases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace lowtide::report {
namespace {

// The replacement fields of a format string, in order.
std::vector<std::string> Fields(const std::string& text) {
  std::vector<std::string> fields;
  for (size_t at = 0; (at = text.find('{', at)) != std::string::npos;) {
    size_t end = text.find('}', at);
    fields.push_back(text.substr(at, end - at + 1));
    at = end;
  }
  return fields;
}

TEST(PhrasesTest, EveryPhraseHasBothLanguages) {
  for (const Translation* entry = kTranslations; entry->name; ++entry) {
    EXPECT_GT(std::strlen(entry->english), 0u) << entry->name;
    EXPECT_EQ(Fields(entry->english), Fields(entry->chinese)) << entry->name;
    std::string chinese = entry->chinese;
    bool translated = std::any_of(chinese.begin(), chinese.end(), [](unsigned char c) { return c >= 0xE3; });
    EXPECT_TRUE(translated || std::strcmp(entry->name, "kPid") == 0) << entry->name << " is not in Chinese";
    bool ascii = std::all_of(entry->english, entry->english + std::strlen(entry->english), [](unsigned char c) { return c < 0x80; });
    EXPECT_TRUE(ascii) << entry->name;
  }
}

TEST(PhrasesTest, WordsFollowTheLanguage) {
  EXPECT_EQ(Words("en").Verdict("leak"), "LEAK");
  EXPECT_EQ(Words("zh").Verdict("leak"), "泄漏");
  EXPECT_EQ(Words("zh").Pool("cuda:1"), "cuda:1");
  EXPECT_EQ(Words("zh").Pick("english", ""), "english");
  EXPECT_EQ(Words("en").Say(Phrase::kSinceStep, 7), ", since step 7");
}

TEST(PhrasesTest, RanksAndRatesAreGathered) {
  Words words("en");
  EXPECT_EQ(words.OnRanks({3}), ", rank 3");
  EXPECT_EQ(words.OnRanks({0, 1}), ", ranks 0, 1");
  EXPECT_EQ(words.OnRanks({0, 1, 2, 3, 7, 9, 10, 11}), ", ranks 0-3, 7, 9-11");
  EXPECT_EQ(words.Rates("cpu", 2000, 2001), "+2.00 KB/step");
  EXPECT_EQ(words.Rates("cpu", 2000, 3000), "+2.00 KB/step to +3.00 KB/step");
  EXPECT_EQ(words.Rates("cpu", {}, {}), "");
}

TEST(PhrasesTest, FileDescriptorsAreCounted) {
  EXPECT_EQ(Words("en").Rate("fds", 2, true), "+2/step");
  EXPECT_EQ(Words("en").Rate("cpu", 2000, true), "+2.00 KB/step");
  EXPECT_EQ(Words("en").Rate("cpu", -2000, true), "-2.00 KB/step");
  EXPECT_EQ(Words::Amount("fds", 31), "31");
}

TEST(PhrasesTest, UnitsAreTranslated) {
  EXPECT_EQ(Words("zh").Rate("cpu", 2000, true), "+2.00 KB/步");
  EXPECT_EQ(Words("en").Duration(200), "3 min 20 s");
  EXPECT_EQ(Words("zh").Duration(200), "3 分 20 秒");
  EXPECT_EQ(Words("zh").Duration(0.85), "850 毫秒");
  EXPECT_EQ(Words("zh").Duration(4 * 86400 + 3 * 3600), "4 天 3 小时");
  EXPECT_EQ(Words("zh").Ended("still running"), "仍在运行");
  EXPECT_EQ(Words("zh").Ended("exit 0"), "退出码 0");
  EXPECT_EQ(Words("en").Ended("exit 0"), "exit 0");
  EXPECT_EQ(Words("en").Objects(1), " in 1 object");
  EXPECT_EQ(Words("en").Objects(1200), " in 1,200 objects");
  EXPECT_EQ(Words("en").Objects(0), "") << "nothing new: one object that grew";
}

}  // namespace
}  // namespace lowtide::report
