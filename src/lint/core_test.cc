// Hostile and odd input: nothing throws, hangs or reads out of bounds; and what crosses files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "lint/facts.h"
#include "lint/index.h"
#include "lint/lint.h"
#include "lint/scan.h"

namespace lowtide::lint {
namespace {

const char* const kLeak =
    "def train(model, loader, criterion, optimizer):\n"
    "    total = 0\n"
    "    for x, y in loader:\n"
    "        loss = criterion(model(x), y)\n"
    "        optimizer.zero_grad()\n"
    "        loss.backward()\n"
    "        optimizer.step()\n"
    "        total += loss\n";

std::vector<Diagnostic> Lint(const std::string& text, std::string_view code = "LT101") {
  RuleSet rules;
  rules.Add(code);
  ModuleFacts facts = Analyze({"a.py", text});
  Index index({&facts});
  return Resolve(facts, index, rules);
}

TEST(Core, FindsTheLeakAndItsPlace) {
  auto found = Lint(kLeak);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].line, 8u);
  EXPECT_EQ(found[0].column, 9u);
  EXPECT_EQ(std::string(kLeak).substr(found[0].start, found[0].end - found[0].start), "total += loss");
}

TEST(Core, ColumnsCountCodePoints) {
  std::string text = std::string(kLeak);
  text.replace(text.find("total += loss"), 13, "t\xc3\xa4 = '\xe2\x82\xac'; total += loss");
  auto found = Lint(text);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].column, 9u + 11u - 1u);
}

TEST(Core, ToleratesMarksTabsAndCarriageReturns) {
  EXPECT_EQ(Lint("\xef\xbb\xbf" + std::string(kLeak)).size(), 1u);
  std::string tabs = kLeak, dos;
  for (size_t at; (at = tabs.find("    ")) != std::string::npos;) tabs.replace(at, 4, "\t");
  EXPECT_EQ(Lint(tabs).size(), 1u);
  for (const char* c = kLeak; *c; ++c) dos += *c == '\n' ? std::string("\r\n") : std::string(1, *c);
  EXPECT_EQ(Lint(dos).size(), 1u);
}

TEST(Core, ToleratesBrokenSyntaxAroundIt) {
  EXPECT_EQ(Lint("def broken(:\n    pass\n\n\n" + std::string(kLeak)).size(), 1u);
  EXPECT_EQ(Lint(std::string(kLeak) + "\n\nx = (1,\n").size(), 1u);
  EXPECT_EQ(Lint(std::string(kLeak) + "\n\ndef f(b):\n    return 1, *(None,) * len(b)\n").size(), 1u);
}

TEST(Core, SurvivesDeepNesting) {
  for (std::string_view unit : {"(", "[", "{", "-", "not ", "lambda: ", "f(", "a.b(", "if x:\n", "a[", "x=", "*"}) {
    std::string text = "import torch\nx.backward()\n";
    for (int i = 0; i < 20000; ++i) text += unit;
    Lint(text, "ALL");
  }
  std::string indents = "import torch\nx.backward()\n";
  for (int i = 0; i < 400; ++i) indents += std::string(i, ' ') + "for x in loader:\n";
  Lint(indents + std::string(400, ' ') + "total += loss\n", "ALL");
  std::string defs = "import torch\nx.backward()\n";
  for (int i = 0; i < 400; ++i) defs += std::string(i, ' ') + "def f(x):\n";
  Lint(defs + std::string(400, ' ') + "return f(x)\n", "ALL");
  // Chains and nests must not take twice as long per link.
  std::string chain = "import torch\nx.backward()\nz = a";
  for (int i = 0; i < 20000; ++i) chain += ".backward()";
  Lint(chain + "\n", "ALL");
  std::string named = "import torch\n";
  for (int i = 0; i < 120; ++i) named += std::string(i, ' ') + "def f" + std::to_string(i) + "(x):\n";
  Lint(named + std::string(120, ' ') + "x.backward()\n", "ALL");
}

TEST(Core, SurvivesAnyBytes) {
  std::string text = "import torch\nx.backward()\n";
  for (int i = 0; i < 100000; ++i) text += static_cast<char>(i * 7919 >> 3);
  Lint(text, "ALL");
  Lint(std::string(1 << 20, '\0'), "ALL");
  Lint("", "ALL");
}

// Every prefix and every single-byte cut of a program.
TEST(Core, SurvivesCuts) {
  std::string text = std::string("import torch\n") + kLeak;
  for (size_t i = 0; i <= text.size(); ++i) {
    Lint(text.substr(0, i), "ALL");
    std::string cut = text;
    if (i < cut.size()) cut.erase(i, 1);
    Lint(cut, "ALL");
  }
}

TEST(Core, FactsSurviveTheCacheAndRefuseDamage) {
  ModuleFacts facts = Analyze({"a.py", kLeak});
  std::string bytes = facts.Serialize();
  auto back = ModuleFacts::Deserialize(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->Serialize(), bytes);
  Index index({&*back});
  EXPECT_EQ(Resolve(*back, index, RuleSet::All()).size(), Resolve(facts, index, RuleSet::All()).size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(ModuleFacts::Deserialize(std::string_view(bytes).substr(0, i)));
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(~damaged[i]);
    ModuleFacts::Deserialize(damaged);  // may succeed, must not crash
  }
}

TEST(Core, ParsesOnlyWhatConcernsTraining) {
  std::string text = "import os\n\n\ndef unrelated(a):\n    return os.path.join(a, 'b')\n\n\n" + std::string(kLeak);
  auto ranges = RelevantRanges(text);
  ASSERT_FALSE(ranges.empty());
  size_t parsed = 0;
  for (const Range& range : ranges) parsed += range.end - range.start;
  EXPECT_LT(parsed, text.size());
  auto found = Lint(text);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].line, 15u);
  EXPECT_TRUE(RelevantRanges("def f(x):\n    return x + 1\n").empty());
}

TEST(Core, KeepsMultilineHeadsWhole) {
  std::string text =
      "class A(Base):\n    def __init__(\n        self,\n        model,\n    ):\n        self.model = model\n\n"
      "    def fit(self, loader, criterion, optimizer):\n        total = 0\n        for x in loader:\n"
      "            loss = criterion(self.model(x))\n            optimizer.zero_grad()\n            loss.backward()\n"
      "            optimizer.step()\n            total += loss\n";
  EXPECT_EQ(Lint(text).size(), 1u);
}

struct Project {
  std::vector<ModuleFacts> facts;
  std::vector<Diagnostic> Of(size_t i, std::string_view code) {
    std::vector<const ModuleFacts*> all;
    for (auto& one : facts) all.push_back(&one);
    Index index(all);
    RuleSet rules;
    rules.Add(code);
    return Resolve(facts[i], index, rules);
  }
};

TEST(Index, CallersSwitchAutogradOff) {
  Project project;
  project.facts.push_back(Analyze({"p/evaluate.py", "import torch\n\n\ndef validate(model, loader):\n    model.eval()\n    for x in loader:\n        model(x)\n"}));
  EXPECT_EQ(project.Of(0, "LT106").size(), 1u);
  project.facts.push_back(Analyze({"p/main.py", "import torch\nfrom evaluate import validate\n\n\ndef main(model, loader):\n    model.eval()\n    with torch.no_grad():\n        validate(model, loader)\n"}));
  EXPECT_EQ(project.Of(0, "LT106").size(), 0u);
}

TEST(Index, LossesDetachedElsewhere) {
  std::string train =
      "import torch\nfrom losses import ComputeLoss\n\n\ndef train(model, loader, optimizer):\n    compute_loss = ComputeLoss(model)\n    total = 0\n"
      "    for x, y in loader:\n        loss, items = compute_loss(model(x), y)\n        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n        total += items\n";
  Project project;
  project.facts.push_back(Analyze({"train.py", train}));
  EXPECT_EQ(project.Of(0, "LT101").size(), 0u);  // nobody says what the second value is
  std::string losses = "import torch\n\n\nclass ComputeLoss:\n    def __call__(self, p, y):\n        loss = (p - y).abs().mean()\n        return loss, loss";
  project.facts.push_back(Analyze({"losses.py", losses + ".detach()\n"}));
  EXPECT_EQ(project.Of(0, "LT101").size(), 0u);
  project.facts[1] = Analyze({"losses.py", losses + " * 2\n"});
  EXPECT_EQ(project.Of(0, "LT101").size(), 1u);
}

TEST(Index, EpochIsSetElsewhere) {
  Project project;
  project.facts.push_back(Analyze({"data.py", "from torch.utils.data.distributed import DistributedSampler\n\n\ndef build(train_dataset):\n    return DistributedSampler(train_dataset)\n"}));
  EXPECT_EQ(project.Of(0, "LT117").size(), 1u);
  project.facts.push_back(Analyze({"train.py", "from data import build\n\n\ndef train(sampler):\n    for epoch in range(9):\n        sampler.set_epoch(epoch)\n"}));
  EXPECT_EQ(project.Of(0, "LT117").size(), 0u);
}

// What the fuzzer found interesting is replayed in every run.
TEST(Corpus, IsReplayed) {
  std::filesystem::path folder = std::filesystem::path(LOWTIDE_SOURCE_DIR) / "tests/corpus/lint";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no corpus at " << folder;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(in)), {});
    Lint(text, "ALL");
    ++files;
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace lowtide::lint
