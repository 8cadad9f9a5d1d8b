#include "lint/config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"

namespace lowtide::lint {
namespace {

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(root_ + "/pkg/deep"); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& name, const std::string& text) {
    WriteFileAtomically(root_ + "/" + name, text);
  }

  const std::string root_ = testing::TempDir() + "lowtide_config_test";
};

TEST_F(ConfigTest, ReadsEveryKey) {
  Write("pyproject.toml",
        "[tool.lowtide.lint]\nselect = ['LT1']\nextend-select = ['LT120']\nignore = ['LT112']\nexclude = "
        "['old']\n"
        "extend-exclude = ['gen']\npreview = true\nfail-on = 'warning'\nbaseline = "
        "'b.json'\nrespect-gitignore = false\n"
        "[tool.lowtide.lint.per-file-ignores]\n'tests/*' = ['LT104', 'LT106']\n");
  auto config = ReadConfig(root_ + "/pyproject.toml");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->folder, root_);
  EXPECT_EQ(config->select, std::vector<std::string>{"LT1"});
  EXPECT_EQ(config->extend_exclude, std::vector<std::string>{"gen"});
  EXPECT_EQ(config->fail_on, "warning");
  EXPECT_FALSE(config->respect_gitignore);
  ASSERT_EQ(config->per_file_ignores.size(), 1u);
  EXPECT_EQ(config->per_file_ignores[0].second.size(), 2u);
}

TEST_F(ConfigTest, NamesTheLineOfAMistake) {
  for (auto [text, part] : {std::pair{"[tool.lowtide.lint]\nselct = []\n", "no key `selct`"},
                            std::pair{"[tool.lowtide.lint]\nselect = 'LT1'\n", "must be a list"},
                            std::pair{"[tool.lowtide.lint]\nfail-on = 'all'\n", "cannot be \"all\""},
                            std::pair{"[tool\nx", "line 1"}}) {
    Write("pyproject.toml", text);
    try {
      ReadConfig(root_ + "/pyproject.toml");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("line "), std::string::npos) << error.what();
    }
  }
}

TEST_F(ConfigTest, TheNearestFileWithATableIsUsed) {
  Write("pyproject.toml", "[tool.lowtide.lint]\nselect = ['LT101']\n");
  Write("pkg/pyproject.toml", "[tool.other]\nx = 1\n");
  ConfigFinder finder(false);
  EXPECT_EQ(finder.For(root_ + "/pkg/deep").file, root_ + "/pyproject.toml");
  Write("pkg/deep/pyproject.toml", "[tool.lowtide.lint]\n");
  EXPECT_EQ(ConfigFinder(false).For(root_ + "/pkg/deep").file, root_ + "/pkg/deep/pyproject.toml");
  EXPECT_EQ(ConfigFinder(true).For(root_ + "/pkg/deep").file, "");
}

TEST_F(ConfigTest, ABrokenFileIsToldOnceAndCountsAsDefaults) {
  Write("pyproject.toml", "[tool.lowtide.lint]\nselect = 3\n");
  ConfigFinder finder(false);
  EXPECT_EQ(finder.For(root_ + "/pkg").file, "");
  EXPECT_EQ(finder.For(root_ + "/pkg/deep").file, "");
  EXPECT_EQ(finder.problems().size(), 1u);
}

}  // namespace
}  // namespace lowtide::lint
