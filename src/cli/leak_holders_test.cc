#include "cli/leak_holders.h"

#include <gtest/gtest.h>

namespace lowtide::cli {
namespace {

using finding::Document;
using finding::HolderRow;
using finding::VerdictRow;

Document LeakOf(double rate, std::vector<std::pair<const char*, double>> holders) {
  Document document;
  VerdictRow leak;
  leak.pool = "cpu";
  leak.verdict = "leak";
  leak.bytes_per_step = rate;
  document.verdicts.push_back(leak);
  for (auto [pool, bytes] : holders) {
    HolderRow holder;
    holder.pool = pool;
    holder.bytes_per_step = bytes;
    document.holders.push_back(holder);
  }
  return document;
}

TEST(SiftHolders, KeepsWhatExplainsTheLeakAndSmallOnesBesideIt) {
  Document document = LeakOf(1000, {{"cpu", 900}, {"heap", 20}});
  SiftHolders({}, document);
  EXPECT_EQ(document.holders.size(), 2u);
  EXPECT_EQ(document.verdicts[0].unnamed, "");
}

TEST(SiftHolders, ManySmallOnesTogetherExplainIt) {
  Document document = LeakOf(1000, {{"cpu", 90}, {"cpu", 90}, {"heap", 90}});
  SiftHolders({}, document);
  EXPECT_EQ(document.holders.size(), 3u);
}

TEST(SiftHolders, NoiseOfTheInterpreterIsNoHolderOfALeak) {
  Document document = LeakOf(1000, {{"heap", 60}, {"heap", 20}, {"cuda:0", 5}});
  SiftHolders({{0, 51, 60, true, ""}}, document);
  ASSERT_EQ(document.holders.size(), 1u) << "what grows in other memory stays";
  EXPECT_EQ(document.holders[0].pool, "cuda:0");
  EXPECT_NE(document.verdicts[0].unnamed.find("ended 9 steps after"), std::string::npos) << document.verdicts[0].unnamed;
  EXPECT_FALSE(document.verdicts[0].unnamed_zh.empty());
}

TEST(SiftHolders, MemoryWithoutAnOwnerComesAfterTensorsThatHaveOne) {
  auto with_native = [](const char* heap_verdict) {
    Document document = LeakOf(8192, {{"heap", 32000}, {"cpu", 8192}});
    document.holders[0].code = "LT403";
    document.holders[1].file = "train.py";
    VerdictRow heap;
    heap.pool = "heap";
    heap.verdict = heap_verdict;
    heap.bytes_per_step = 32000;
    document.verdicts.push_back(heap);
    SiftHolders({}, document);
    return document.holders;
  };
  auto both = with_native("leak");
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].pool, "cpu");
  auto tensors_alone = with_native("bounded");
  ASSERT_EQ(tensors_alone.size(), 1u);
  EXPECT_EQ(tensors_alone[0].pool, "cpu");
}

TEST(SiftHolders, SaysWhyThereIsNone) {
  const std::vector<std::pair<CensusFacts, const char*>> cases = {
      {{1, 10, 90, false, ""}, "looked at twice"},  // of another rank
      {{0, 10, 10, false, ""}, "looked at twice"},
      {{0, 10, 90, false, ""}, "between steps 10 and 90"},
      {{0, 0, 0, false, "no extension"}, "failed: no extension"}};
  for (const auto& [facts, wanted] : cases) {
    Document document = LeakOf(1000, {});
    SiftHolders({facts}, document);
    EXPECT_NE(document.verdicts[0].unnamed.find(wanted), std::string::npos) << document.verdicts[0].unnamed;
  }
}

TEST(PlaceLeaks, TheFirstHolderTellsWhatToChangeAndTheFirstWithALineWhere) {
  Document document = LeakOf(1000, {{"cuda:0", 2000}, {"cpu", 900}, {"heap", 800}});
  document.verdicts[0].fingerprint = "f";
  document.findings.resize(1);
  document.findings[0].fingerprint = "f";
  document.findings[0].help = "look for tensors";
  document.holders[0].help = "of another pool";
  document.holders[1].help = "detach it", document.holders[1].help_zh = "分离", document.holders[1].code = "LT401";
  document.holders[2].file = "train.py", document.holders[2].line = 7;
  PlaceLeaks(document);
  EXPECT_EQ(document.findings[0].help, "detach it (`lowtide explain LT401`)");
  EXPECT_EQ(document.findings[0].help_zh, "分离 (`lowtide explain LT401`)");
  ASSERT_EQ(document.findings[0].where.size(), 1u);
  EXPECT_EQ(document.findings[0].where[0].line, 7);
}

TEST(SiftHolders, HealthyRowsKeepTheirPeace) {
  Document document = LeakOf(1000, {{"cpu", 1}});
  document.verdicts[0].verdict = "bounded";
  SiftHolders({}, document);
  EXPECT_TRUE(document.holders.empty()) << "who holds what does not leak is no news";
  EXPECT_EQ(document.verdicts[0].unnamed, "");
}

TEST(SiftHolders, HoldersOfWhatIsNotDecidedStay) {
  Document document = LeakOf(1000, {{"cpu", 1}});
  document.verdicts[0].verdict = "insufficient";
  SiftHolders({}, document);
  EXPECT_EQ(document.holders.size(), 1u);
}

}  // namespace
}  // namespace lowtide::cli
