#include "lint/driver_fix.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"

namespace lowtide::lint {
namespace {

Diagnostic With(const std::string& code, std::vector<Edit> edits, bool safe = true) {
  Diagnostic diagnostic;
  diagnostic.code = code;
  diagnostic.fix = Fix{safe, "", std::move(edits)};
  return diagnostic;
}

// Reports every `from` and offers to put `to` in its place.
FixRules Replacing(std::vector<std::pair<std::string, std::string>> pairs, bool safe = true) {
  FixRules rules;
  rules.check = [=](std::string_view source) {
    std::vector<Diagnostic> out;
    for (const auto& [from, to] : pairs) {
      for (size_t at = source.find(from); at != std::string_view::npos;
           at = source.find(from, at + from.size())) {
        out.push_back(
            With(from, {{static_cast<uint32_t>(at), static_cast<uint32_t>(at + from.size()), to}}, safe));
      }
    }
    return out;
  };
  rules.apply = [](Fixing& fixing, const std::vector<Edit>& edits) {
    fixing.source = fixing.stored = ApplyEdits(fixing.source, edits);
    return true;
  };
  return rules;
}

Fixing Fixed(const std::string& text, const FixRules& rules) {
  Fixing fixing{text, text};
  FixAll(fixing, rules);
  return fixing;
}

TEST(Fix, RoundsGoOnUntilNothingIsLeft) {
  EXPECT_EQ(Fixed("aaa = 1\n", Replacing({{"aa", "a"}})).source, "a = 1\n");
  Fixing two = Fixed("abc = 1\n", Replacing({{"ab", "x"}, {"bc", "y"}}));  // they overlap: the first wins
  EXPECT_EQ(two.source, "xc = 1\n");
  EXPECT_EQ(two.fixed, 1u);
}

TEST(Fix, ARuleThatNeverRestsIsStopped) {
  EXPECT_LE(Fixed("a = 1\n", Replacing({{"a =", "aa ="}})).source.size(), 30u);
  Fixing flip = Fixed("a = 1\n", Replacing({{"a ", "b "}, {"b ", "a "}}));
  EXPECT_TRUE(flip.source == "a = 1\n" || flip.source == "b = 1\n");
}

TEST(Fix, WhatBreaksTheFileIsWithdrawnAndTheRestStays) {
  Fixing fixing = Fixed("x = good\ny = bad\nz = good\n", Replacing({{"good", "fine"}, {"bad", "(("}}));
  EXPECT_EQ(fixing.source, "x = fine\ny = bad\nz = fine\n");
  EXPECT_EQ(fixing.withdrawn, 1u);
  EXPECT_EQ(fixing.fixed, 2u);
}

TEST(Fix, ManyFixesAndAFewBadOnes) {
  std::string text, expected;
  for (int i = 0; i < 3000; ++i) {
    text += i % 1000 == 7 ? "y = bad\n" : "x = good\n";
    expected += i % 1000 == 7 ? "y = bad\n" : "x = fine\n";
  }
  Fixing fixing = Fixed(text, Replacing({{"good", "fine"}, {"bad", "(("}}));
  EXPECT_EQ(fixing.source, expected);
  EXPECT_EQ(fixing.fixed, 2997u);
}

TEST(Fix, AFileThatWasBrokenBeforeMayBeFixed) {
  EXPECT_EQ(Fixed("def f(:\nx = good\n", Replacing({{"good", "fine"}})).source, "def f(:\nx = fine\n");
}

TEST(Fix, UnsafeOnesNeedPermission) {
  FixRules rules = Replacing({{"a", "b"}}, false);
  EXPECT_EQ(Fixed("a = 1\n", rules).source, "a = 1\n");
  rules.unsafe = true;
  EXPECT_EQ(Fixed("a = 1\n", rules).source, "b = 1\n");
}

TEST(Fix, EditsOutsideTheTextAreLeftAlone) {
  FixRules rules = Replacing({});
  rules.check = [](std::string_view) {
    return std::vector<Diagnostic>{With("A", {{5, 900, "x"}}), With("B", {{3, 1, "x"}}), With("C", {}),
                                   With("D", {{2, 3, ""}, {0, 1, ""}})};
  };
  EXPECT_EQ(Fixed("abcdef\n", rules).source, "abcdef\n");
}

TEST(Fix, SharedEditsAreMadeOnce) {
  FixRules rules = Replacing({});
  rules.check = [](std::string_view source) {
    if (source.starts_with("import")) return std::vector<Diagnostic>{};
    return std::vector<Diagnostic>{With("A", {{0, 0, "import x\n"}, {0, 1, "x.a"}}),
                                   With("B", {{0, 0, "import x\n"}, {4, 5, "x.b"}})};
  };
  EXPECT_EQ(Fixed("a + b\n", rules).source, "import x\nx.a + x.b\n");
}

TEST(Fix, SyntaxErrorsAreCounted) {
  EXPECT_EQ(SyntaxErrors("x = 1\n"), 0u);
  EXPECT_EQ(SyntaxErrors(""), 0u);
  EXPECT_GT(SyntaxErrors("x = (1\n"), 0u);
  EXPECT_GT(SyntaxErrors("def f(:\n"), 0u);
  EXPECT_GT(SyntaxErrors("x = )\ny = )\n"), SyntaxErrors("x = )\ny = 1\n"));
}

TEST(Fix, AFileThatChangedMeanwhileIsNotReplaced) {
  std::string path = testing::TempDir() + "lowtide_fix_test.py";
  WriteFileAtomically(path, "new");
  EXPECT_THROW(ReplaceFile(path, "old", "fixed"), Error);
  EXPECT_EQ(ReadFile(path), "new");
  ReplaceFile(path, "new", "fixed");
  EXPECT_EQ(ReadFile(path), "fixed");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace lowtide::lint
