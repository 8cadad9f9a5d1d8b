#include "cli/ranks_compare.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/ranks_stack.h"

namespace lowtide::cli {
namespace {

using nlohmann::json;

void Add(RankFacts& facts, const std::string& row) {
  json parsed = json::parse(row);
  facts.rows[parsed["kind"].get<std::string>()].push_back(parsed);
}

// `count` ranks whose model is wrapped.
Ranks Wrapped(int count, const std::string& wrap = R"({"kind":"wrap","device":"cpu","broadcasts":true,"batch_norms":0})") {
  Ranks ranks;
  for (int rank = 0; rank < count; ++rank) {
    RankFacts facts;
    facts.rank = rank, facts.world = count, facts.pid = 100 + rank, facts.host = "a";
    Add(facts, wrap);
    ranks.facts[rank] = facts;
  }
  return ranks;
}

std::vector<std::string> Codes(const Ranks& ranks) {
  finding::Document document;
  CompareRanks(ranks, document);
  std::vector<std::string> codes;
  for (const auto& finding : document.findings) codes.push_back(finding.code);
  return codes;
}

finding::Finding Only(const Ranks& ranks) {
  finding::Document document;
  CompareRanks(ranks, document);
  EXPECT_EQ(document.findings.size(), 1u);
  return document.findings.empty() ? finding::Finding{} : document.findings[0];
}

using Codes1 = std::vector<std::string>;

TEST(CompareRanks, RanksOnOneGpuOfOneMachineAreNamed) {
  Ranks ranks = Wrapped(3, R"({"kind":"wrap","device":"cuda","index":0})");
  ranks.facts[2].host = "b";
  finding::Finding found = Only(ranks);
  EXPECT_EQ(found.code, "LT610");
  EXPECT_NE(found.message.find("ranks 0, 1"), std::string::npos) << found.message;
}

TEST(CompareRanks, EachRankSeesItsOwnGpuAsTheFirst) {
  Ranks ranks = Wrapped(2);
  for (int rank = 0; rank < 2; ++rank) {
    ranks.facts[rank].rows["wrap"] = {json{{"device", "cuda"}, {"index", 0}, {"visible", std::to_string(rank)}}};
  }
  EXPECT_EQ(Codes(ranks), Codes1{});
  ranks.facts[1].rows["wrap"][0]["visible"] = "0,1";
  EXPECT_EQ(Codes(ranks), Codes1{"LT610"});
  ranks.facts[0].rows["wrap"][0]["uuid"] = "x", ranks.facts[1].rows["wrap"][0]["uuid"] = "y";
  EXPECT_EQ(Codes(ranks), Codes1{});
}

void AddParameters(RankFacts& facts, int step, int hash, double size, const char* key = "items") {
  Add(facts, fmt::format(R"({{"kind":"parameters","step":{},"wrapped":true,"shapes":1,"collectives":0,"{}":[["w",{},{}]]}})", step, key, hash, size));
}

TEST(CompareRanks, CopiesThatDriftAreAnErrorWithTheStep) {
  Ranks ranks = Wrapped(2);
  for (int step : {1, 2, 3, 4}) {
    AddParameters(ranks.facts[0], step, step, 10);
    AddParameters(ranks.facts[1], step, step < 3 ? step : 99 + step, 11);
  }
  finding::Finding found = Only(ranks);
  EXPECT_EQ(found.code, "LT607");
  EXPECT_EQ(found.severity, finding::Severity::kError);
  EXPECT_NE(found.message.find("before step 3"), std::string::npos) << found.message;
}

TEST(CompareRanks, OneLookThatDiffersIsNoProof) {
  Ranks ranks = Wrapped(2);
  for (int step : {1, 2, 3}) AddParameters(ranks.facts[0], step, 1, 10), AddParameters(ranks.facts[1], step, step == 3 ? 2 : 1, 10);
  EXPECT_EQ(Codes(ranks), Codes1{});
}

TEST(CompareRanks, StatisticsCountOnlyWhereTheyAreNotBroadcast) {
  for (bool broadcasts : {false, true}) {
    Ranks ranks = Wrapped(2, broadcasts ? R"({"kind":"wrap","device":"cpu","broadcasts":true,"batch_norms":2})"
                                        : R"({"kind":"wrap","device":"cpu","broadcasts":false,"batch_norms":2})");
    for (int step : {2, 3, 4}) {
      AddParameters(ranks.facts[0], step, 1, 10, "buffers");
      AddParameters(ranks.facts[1], step, 2, 10, "buffers");
    }
    EXPECT_EQ(Codes(ranks), broadcasts ? Codes1{} : Codes1{"LT611"});
  }
}

void AddLook(RankFacts& facts, int step, int rows) {
  Add(facts, fmt::format(R"({{"kind":"data","step":{},"rows":[{},{}]}})", step, rows, rows + 1));
}

TEST(CompareRanks, EqualRowsAreTheSameDataUnlessItIsOneBatchForEver) {
  for (bool constant : {false, true}) {
    Ranks ranks = Wrapped(3);
    for (int step : {1, 2, 3, 4}) {
      int rows = constant ? 5 : 10 * step;
      AddLook(ranks.facts[0], step, rows), AddLook(ranks.facts[2], step, rows), AddLook(ranks.facts[1], step, 1000 * step);
    }
    if (constant) {
      EXPECT_EQ(Codes(ranks), Codes1{});
      continue;
    }
    finding::Finding found = Only(ranks);
    EXPECT_EQ(found.code, "LT602");
    EXPECT_NE(found.message.find("ranks 0, 2 read"), std::string::npos) << found.message;
  }
}

TEST(CompareRanks, UnevenBatchesAreFineInsideJoin) {
  Ranks ranks = Wrapped(2);
  for (int rank = 0; rank < 2; ++rank) Add(ranks.facts[rank], fmt::format(R"({{"kind":"loader","step":1,"batches":{}}})", 20 + rank));
  EXPECT_EQ(Codes(ranks), Codes1{"LT605"});
  for (int rank = 0; rank < 2; ++rank) Add(ranks.facts[rank], R"({"kind":"end","step":20,"joined":true})");
  EXPECT_EQ(Codes(ranks), Codes1{});
}

TEST(CompareRanks, DifferentCollectivesAreNamedWithTheirCounts) {
  Ranks ranks = Wrapped(2);
  for (int rank = 0; rank < 2; ++rank) {
    Add(ranks.facts[rank], R"({"kind":"end","step":20,"joined":false})");
    Add(ranks.facts[rank], fmt::format(R"({{"kind":"collectives","counts":{{"allreduce":9,"broadcast":{}}}}})", rank));
  }
  finding::Finding found = Only(ranks);
  EXPECT_EQ(found.code, "LT617");
  EXPECT_NE(found.message.find("broadcast 0 times on rank 0 and 1 times on rank 1"), std::string::npos) << found.message;
}

// Steps of one second, in which each rank waits for the slowest.
RankTrack Track(int rank, double data, double compute, double slowest) {
  RankTrack track;
  track.rank = rank;
  for (uint64_t step = 11; step < 111; ++step) track.steps.push_back({step, slowest, data, slowest - data - compute, true});
  return track;
}

TEST(CompareTimes, TheSlowRankIsNamedWithItsSlowPart) {
  Ranks ranks;
  ranks.tracks = {Track(0, 0.01, 0.09, 0.2), Track(1, 0.11, 0.09, 0.2), Track(2, 0.01, 0.1, 0.2)};
  finding::Finding found = Only(ranks);
  EXPECT_EQ(found.code, "LT613");
  EXPECT_NE(found.message.find("rank 1 is a straggler (score 0.50)"), std::string::npos) << found.message;
  EXPECT_NE(found.message.find("waiting for its data"), std::string::npos) << found.message;
}

TEST(CompareTimes, EqualRanksAndRanksThatNeverMeetAreQuiet) {
  Ranks ranks;
  ranks.tracks = {Track(0, 0.01, 0.09, 0.1), Track(1, 0.01, 0.085, 0.1)};
  EXPECT_EQ(Codes(ranks), Codes1{});
  ranks.tracks = {Track(0, 0, 0.1, 0.1), Track(1, 0, 0.2, 0.2)};
  EXPECT_EQ(Codes(ranks), Codes1{});
}

TEST(CompareMemory, AHighPeakIsNamed) {
  Ranks ranks;
  ranks.tracks.resize(3);
  for (int rank = 0; rank < 3; ++rank) ranks.tracks[rank].rank = rank, ranks.tracks[rank].peak["cuda"] = rank == 0 ? 9e9 : 6e9;
  finding::Finding found = Only(ranks);
  EXPECT_EQ(found.code, "LT618");
  EXPECT_NE(found.message.find("rank 0 in cuda"), std::string::npos) << found.message;
  ranks.tracks[0].peak["cuda"] = 6.5e9;
  EXPECT_EQ(Codes(ranks), Codes1{});
}

TEST(CompareEnds, OnlyRanksThatLeftNoWordWhileOthersDid) {
  Ranks ranks;
  ranks.tracks.resize(2);
  ranks.tracks[1].rank = 1;
  ranks.tracks[0].end = ranks.tracks[1].end = RankTrack::End::kWithoutWord;
  EXPECT_EQ(Codes(ranks), Codes1{});
  ranks.tracks[0].end = RankTrack::End::kException;
  finding::Finding found = Only(ranks);
  EXPECT_EQ(found.code, "LT616");
  EXPECT_NE(found.message.find("rank 1"), std::string::npos);
}

TEST(CompareEnds, TheFirstCrashIsNamedUnlessAnExceptionCameBefore) {
  using End = RankTrack::End;
  Ranks ranks;
  ranks.tracks.resize(3);
  for (int i = 0; i < 3; ++i) ranks.tracks[i].rank = i;
  RankTrack &first = ranks.tracks[0], &second = ranks.tracks[1], &third = ranks.tracks[2];
  first.end = End::kSignal, first.signal = SIGTERM, first.end_ns = 5;  // the launcher's
  second.end = End::kSignal, second.signal = SIGABRT, second.end_ns = 4;
  third.end = End::kSignal, third.signal = SIGSEGV, third.end_ns = 3;
  finding::Finding found = Only(ranks);
  EXPECT_NE(found.message.find("rank 2"), std::string::npos) << found.message;
  EXPECT_NE(found.message.find("SIGSEGV"), std::string::npos) << found.message;
  first.end = End::kException, first.end_ns = 2;
  EXPECT_EQ(Codes(ranks), Codes1{});
  first.host = "another";  // a fault is no consequence of what happens elsewhere
  EXPECT_NE(Only(ranks).message.find("rank 2"), std::string::npos);
  third.end = End::kSignal, third.signal = SIGTERM, third.end_ns = 9;
  EXPECT_EQ(Codes(ranks), Codes1{});  // std::terminate is one
}

TEST(CompareEnds, TheOneRankThatWasAskedToEndIsNamed) {
  using End = RankTrack::End;
  Ranks ranks;
  ranks.tracks.resize(3);
  for (int i = 0; i < 3; ++i) {
    ranks.tracks[i].rank = i, ranks.tracks[i].end_ns = 10 + i;
    ranks.tracks[i].end = End::kSignal, ranks.tracks[i].signal = SIGTERM;
  }
  EXPECT_EQ(Codes(ranks), Codes1{});  // the whole job was
  ranks.tracks[1].end = ranks.tracks[2].end = End::kException;
  finding::Finding found = Only(ranks);
  EXPECT_NE(found.message.find("rank 0"), std::string::npos) << found.message;
  EXPECT_NE(found.message.find("SIGTERM"), std::string::npos) << found.message;
  ranks.tracks[0].end_ns = 20;  // by the launcher, after the others had failed
  EXPECT_EQ(Codes(ranks), Codes1{});
}

TEST(ReadFacts, DamagedFilesGiveWhatIsWhole) {
  auto folder = std::filesystem::temp_directory_path() / fmt::format("lowtide-facts-{}", ::getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "facts-rank1-a-7.jsonl") << R"({"kind":"rank","rank":1,"world":2,"pid":7,"stack_file":"../../x","stack_signal":"no"})"
                                                 << "\n{\"kind\":\"wrap\"}\nnot json\n[1]\n{\"kind\":\"data\",\"rows\":";
  std::ofstream(folder / "facts-rank2-a-8.jsonl") << "\xff\xfe\n";
  auto facts = ReadFacts(folder.string());
  std::filesystem::remove_all(folder);
  ASSERT_EQ(facts.size(), 1u);
  EXPECT_EQ(facts.at(1).Of("wrap").size(), 1u);
  EXPECT_EQ(facts.at(1).stack_file, "x") << "a name in the run's folder, never a path out of it";
  EXPECT_FALSE(AskForStack(facts.at(1)));
}

TEST(RankBranches, TheBranchThatTouchesWhatLeaks) {
  auto file = std::filesystem::temp_directory_path() / fmt::format("lowtide-branch-{}.py", ::getpid());
  std::ofstream(file) << "def f(rank, store):\n    if rank == 1:\n        print(1)\n    store.add(2)\n    if rank == 0:\n        store.clear()\n";
  finding::Document document;
  finding::Finding leak;
  leak.code = "LT208";
  leak.where = {{file.string(), 4, 0, "store.items[*]", {}, {}}};
  document.findings = {leak};
  PlaceRankBranches(document);
  std::filesystem::remove(file);
  ASSERT_EQ(document.findings[0].where.size(), 2u);
  EXPECT_EQ(document.findings[0].where[1].line, 5);
}

}  // namespace
}  // namespace lowtide::cli
