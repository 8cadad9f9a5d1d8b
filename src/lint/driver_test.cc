#include "lint/driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"

namespace lowtide::lint {
namespace {

const char kTrain[] =
    "import torch\n\n\ndef train(model, loader, optimizer, criterion):\n    total = 0\n    for x, y in "
    "loader:\n"
    "        optimizer.zero_grad()\n        loss = criterion(model(x), y)\n        loss.backward()\n"
    "        optimizer.step()\n        total += loss\n        torch.cuda.empty_cache()\n    return total\n";

class DriverTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ + "/sub");
    for (int i = 0; i < 24; ++i) {
      WriteFileAtomically(root_ + (i % 2 ? "/m" : "/sub/m") + std::to_string(i) + ".py",
                          i % 3 ? kTrain : "x = 1\n");
    }
    options_.paths = {root_};
    options_.isolated = true;
    options_.cache_folder = root_ + "/cache";
    options_.jobs = 4;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::vector<std::string> Found() const {
    std::vector<std::string> out;
    for (const FileReport& file : lint::Run(options_).files) {
      for (const Located& item : file.items) {
        out.push_back(file.path + ":" + std::to_string(item.line) + item.diagnostic.code + item.fingerprint);
      }
    }
    return out;
  }

  DriverOptions options_;
  const std::string root_ = testing::TempDir() + "lowtide_driver_test";
};

TEST_F(DriverTest, ThreadsAndCacheDoNotChangeTheAnswer) {
  options_.cache = false;
  options_.jobs = 1;
  auto alone = Found();
  EXPECT_EQ(alone.size(), 32u);
  EXPECT_TRUE(std::is_sorted(alone.begin(), alone.end(), [](const auto& a, const auto& b) {
    return a.substr(0, a.find(':')) < b.substr(0, b.find(':'));
  }));
  options_.jobs = 4;
  EXPECT_EQ(Found(), alone);
  options_.cache = true;
  EXPECT_EQ(Found(), alone);
  EXPECT_EQ(Found(), alone);
  EXPECT_EQ(lint::Run(options_).cached, 24u);
}

TEST_F(DriverTest, FixesInParallelReachARest) {
  options_.select = {"LT101"};
  options_.fixing = DriverOptions::Fixing::kWrite;
  Report report = lint::Run(options_);
  EXPECT_EQ(report.fixed, 16u);
  EXPECT_TRUE(Found().empty());
  EXPECT_EQ(lint::Run(options_).fixed, 0u);
}

TEST_F(DriverTest, WhatCannotBeDoneIsToldAndTheRestIsDone) {
  WriteFileAtomically(root_ + "/cut.ipynb", "{\"cells\": [");
  options_.paths.push_back(root_ + "/nowhere.py");
  Report report = lint::Run(options_);
  EXPECT_EQ(report.problems.size(), 2u);
  EXPECT_EQ(report.checked, 24u);
  options_.select = {"LT999"};
  EXPECT_THROW(lint::Run(options_), Error);
}

}  // namespace
}  // namespace lowtide::lint
