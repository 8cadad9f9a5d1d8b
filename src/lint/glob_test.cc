#include "lint/glob.h"

#include <gtest/gtest.h>

namespace lowtide::lint {
namespace {

TEST(Glob, StarsStopAtSlashesAndDoubleStarsDoNot) {
  EXPECT_TRUE(GlobMatch("*.py", "a.py"));
  EXPECT_FALSE(GlobMatch("*.py", "a/b.py"));
  EXPECT_TRUE(GlobMatch("**/b.py", "b.py"));
  EXPECT_TRUE(GlobMatch("**/b.py", "x/y/b.py"));
  EXPECT_FALSE(GlobMatch("**/b.py", "x/cb.py"));
  EXPECT_TRUE(GlobMatch("a/**/b", "a/b"));
  EXPECT_TRUE(GlobMatch("a/**/b", "a/x/y/b"));
  EXPECT_TRUE(GlobMatch("a/**", "a/x/y"));
  EXPECT_FALSE(GlobMatch("a/**", "b/x"));
  EXPECT_TRUE(GlobMatch("a/**/c*/d.py", "a/c1/x/c2/d.py"));
}

TEST(Glob, SetsAndEscapes) {
  EXPECT_TRUE(GlobMatch("v[0-9].py", "v7.py"));
  EXPECT_FALSE(GlobMatch("v[!0-9].py", "v7.py"));
  EXPECT_TRUE(GlobMatch("\\*.py", "*.py"));
  EXPECT_FALSE(GlobMatch("\\*.py", "a.py"));
  EXPECT_TRUE(GlobMatch("a[.py", "a[.py"));
  EXPECT_FALSE(GlobMatch("a?b", "a/b"));
}

TEST(Glob, HostilePatternsEnd) {
  std::string pattern, path(3000, 'a');
  for (int i = 0; i < 60; ++i) pattern += "*a**/";
  EXPECT_FALSE(GlobMatch(pattern + "b", path));
  EXPECT_FALSE(GlobMatch(std::string(500, '*') + "b", path));
}

TEST(IgnoreRules, TheLastMatchingLineDecides) {
  auto rules = IgnoreRules::Parse("# comment\n*.py\n!keep.py\n/top\nsub/dir\nonly/\n\\#odd\ntrail  \n");
  using M = IgnoreRules::Match;
  EXPECT_EQ(rules.Of("x/a.py", false), M::kIgnore);
  EXPECT_EQ(rules.Of("x/keep.py", false), M::kKeep);
  EXPECT_EQ(rules.Of("top", true), M::kIgnore);
  EXPECT_EQ(rules.Of("x/top", true), M::kNone);
  EXPECT_EQ(rules.Of("sub/dir", true), M::kIgnore);
  EXPECT_EQ(rules.Of("x/sub/dir", true), M::kNone);
  EXPECT_EQ(rules.Of("only", false), M::kNone);
  EXPECT_EQ(rules.Of("x/only", true), M::kIgnore);
  EXPECT_EQ(rules.Of("#odd", false), M::kIgnore);
  EXPECT_EQ(rules.Of("trail", false), M::kIgnore);
}

}  // namespace
}  // namespace lowtide::lint
