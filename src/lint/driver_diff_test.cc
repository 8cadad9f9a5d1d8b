#include "lint/driver_diff.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "base/mapped_file.h"

namespace lowtide::lint {
namespace {

TEST(Diff, OneHunk) {
  EXPECT_EQ(UnifiedDiff("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nD\ne\nf\n", "x.py"),
            "--- x.py\n+++ x.py\n@@ -1,6 +1,6 @@\n a\n b\n c\n-d\n+D\n e\n f\n");
  EXPECT_EQ(UnifiedDiff("a\n", "a\n", "x.py"), "");
  EXPECT_EQ(UnifiedDiff("a", "a\n", "x.py"),
            "--- x.py\n+++ x.py\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n");
  EXPECT_EQ(UnifiedDiff("", "a\n", "x.py"), "--- x.py\n+++ x.py\n@@ -0,0 +1 @@\n+a\n");
}

TEST(Diff, FarChangesAreTwoHunksNearOnesOne) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += std::to_string(i) + "\n";
  auto hunks = [&](const char* first, const char* second) {
    std::string changed = lines;
    changed.replace(changed.find(std::string("\n") + first + "\n") + 1, 2, "xx");
    changed.replace(changed.find(std::string("\n") + second + "\n") + 1, 2, "yy");
    std::string diff = UnifiedDiff(lines, changed, "x");
    size_t count = 0;
    for (size_t at = diff.find("@@ -"); at != std::string::npos; at = diff.find("@@ -", at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(hunks("10", "30"), 2u);
  EXPECT_EQ(hunks("10", "16"), 1u);
  EXPECT_EQ(hunks("10", "17"), 1u);
  EXPECT_EQ(hunks("10", "18"), 2u);
}

// The slow reference: patch(1) turns the old text into the new one.
TEST(Diff, PatchAgrees) {
  if (std::system("command -v patch > /dev/null") != 0) GTEST_SKIP() << "patch(1) is not installed";
  std::mt19937 random(5);
  std::string file = testing::TempDir() + "lowtide_diff.txt";
  for (int round = 0; round < 60; ++round) {
    std::string before, after;
    for (int i = 0; i < 60; ++i) {
      std::string line = std::to_string(random() % 7) + "\n";
      if (random() % 8) before += line;
      if (random() % 8) after += line;
    }
    if (round % 3 == 0 && !after.empty()) after.pop_back();
    WriteFileAtomically(file, before);
    WriteFileAtomically(file + ".diff", UnifiedDiff(before, after, "lowtide_diff.txt"));
    std::string command =
        "cd " + testing::TempDir() + " && patch -s -f lowtide_diff.txt lowtide_diff.txt.diff > /dev/null";
    ASSERT_EQ(before == after ? 0 : std::system(command.c_str()), 0) << UnifiedDiff(before, after, "x");
    ASSERT_EQ(ReadFile(file), after);
  }
  std::filesystem::remove(file);
  std::filesystem::remove(file + ".diff");
}

}  // namespace
}  // namespace lowtide::lint
