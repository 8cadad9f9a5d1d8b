#include "lint/driver_select.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lowtide::lint {
namespace {

using Strings = std::vector<std::string>;

TEST(Select, TheMoreSpecificSelectorWins) {
  Selection one = Select({{Strings{"ALL"}, {"LT121"}, {"LT12"}}}, false);
  EXPECT_TRUE(one.Has("LT121"));
  EXPECT_FALSE(one.Has("LT120"));
  EXPECT_TRUE(one.Has("LT101"));
  EXPECT_TRUE(one.Has("LT950"));
  EXPECT_FALSE(Select({{Strings{"LT101"}, {}, {"LT101"}}}, false).Has("LT101"));
  EXPECT_TRUE(Select({{Strings{"LT101"}, {}, {"LT1"}}}, false).Has("LT101"));
}

TEST(Select, ALaterLayersSelectStartsAfresh) {
  Choice configured{Strings{"LT101"}, {}, {"LT111"}};
  EXPECT_TRUE(Select({configured, {Strings{"LT111"}, {}, {}}}, false).Has("LT111"));
  EXPECT_FALSE(Select({configured, {Strings{"LT111"}, {}, {}}}, false).Has("LT101"));
  EXPECT_FALSE(Select({configured, {std::nullopt, {}, {"LT101"}}}, false).Has("LT101"));
  EXPECT_TRUE(Select({configured, {std::nullopt, {"LT111"}, {}}}, false).Has("LT111"));
}

TEST(Select, PreviewAndOffRules) {
  for (int i = 0; i < kRuleCount; ++i) {
    bool on = Select({}, false).Has(kRules[i].code), previewed = Select({}, true).Has(kRules[i].code);
    EXPECT_EQ(on, kRules[i].enabled == Default::kOn) << kRules[i].code;
    EXPECT_EQ(previewed, kRules[i].enabled != Default::kOff) << kRules[i].code;
    EXPECT_TRUE(Select({{Strings{"ALL"}, {}, {}}}, false).Has(kRules[i].code));
  }
}

TEST(Select, UnknownCodesAreErrors) {
  EXPECT_THROW(CheckSelector("LT999"), Error);
  EXPECT_THROW(CheckSelector(""), Error);
  EXPECT_THROW(CheckSelector("E501"), Error);
  EXPECT_THROW(Select({{Strings{"LT1011"}, {}, {}}}, false), Error);
}

TEST(Select, PerFileIgnores) {
  Selection all = Select({{Strings{"ALL"}, {}, {}}}, false);
  auto has = [&](const char* pattern, const char* path) {
    return ForFile(all, {{pattern, {"LT101"}}}, path).Has("LT101");
  };
  EXPECT_FALSE(has("tests/*", "tests/a.py"));
  EXPECT_FALSE(has("tests", "tests/deep/a.py"));
  EXPECT_TRUE(has("tests/*", "src/tests.py"));
  EXPECT_FALSE(has("*_old.py", "src/a_old.py"));
  EXPECT_TRUE(has("!src/**", "src/a.py"));
  EXPECT_FALSE(has("!src/**", "tools/a.py"));
  EXPECT_FALSE(ForFile(all, {{"a.py", {"ALL"}}}, "a.py").Has("LT950"));
}

}  // namespace
}  // namespace lowtide::lint
