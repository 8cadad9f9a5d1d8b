// What only a comparison between ranks can tell: one function per finding, registered in ranks_compare.cc.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/ranks_facts.h"
#include "finding/document.h"
#include "record/ring_reader.h"

namespace lowtide::cli {

// Where one rank's time and memory went, step by step, from its ring.
struct RankTrack {
  struct Step {
    uint64_t number = 0;
    double seconds = 0;             // from the step's end before to this one's
    double data = 0, collective = 0;  // of it: waiting for the DataLoader, for other ranks
    bool training = true;
    double compute() const { return seconds - data - collective; }
    double own() const { return seconds - collective; }
  };
  int rank = 0;
  std::string host;
  std::vector<Step> steps;  // in order of their numbers; there may be gaps
  std::map<std::string, double> peak, floor;  // by pool ("cpu", "cuda"): the most ever, the least in the second half; bytes
  std::map<std::string, double> capacity;
  int pid = 0;
  uint64_t last_step = 0;
  enum class End { kRunning, kInOrder, kException, kSignal, kWithoutWord } end = End::kRunning;
  int signal = 0;       // with kSignal
  int64_t end_ns = 0;   // when, by the wall's clock; 0: not known
};

RankTrack TrackOf(const record::Ring& ring);

struct Ranks {
  std::map<int, RankFacts> facts;
  std::vector<RankTrack> tracks;
  bool ended = true;  // no rank runs any more
};

// "rank 1", "ranks 0, 2, 3", "ranks 0 to 7": for sentences.
std::string RankList(std::vector<int> ranks);
std::string RankListZh(std::vector<int> ranks);

// A finding with its catalogue severity and a fingerprint over code and `cause`.
finding::Finding RankFinding(const char* code, std::string message, std::string message_zh, std::string help,
                             std::string help_zh, const std::string& cause);

struct Death {
  int rank = 0, pid = 0;
  std::string host;
  uint64_t step = 0;  // its last one
  int signal = 0;     // 0: it left no word
};

// LT616: a rank that died while `others` were there.
finding::Finding DeathFinding(const Death& death, const std::vector<int>& others);

// Adds what the comparison of `ranks` shows. Nothing for a run of one rank.
void CompareRanks(const Ranks& ranks, finding::Document& document);

// A leak on some ranks only: the branch on the rank, in the file of its holder, that touches what leaks.
void PlaceRankBranches(finding::Document& document);

// ranks_data.cc
void CompareRows(const Ranks& ranks, finding::Document& document);        // LT602, LT604
void CompareSamplers(const Ranks& ranks, finding::Document& document);    // LT603
void CompareBatches(const Ranks& ranks, finding::Document& document);     // LT605
// ranks_model.cc
void CompareParameters(const Ranks& ranks, finding::Document& document);  // LT607, LT619
void CompareUnused(const Ranks& ranks, finding::Document& document);      // LT609
void CompareDevices(const Ranks& ranks, finding::Document& document);     // LT610
void CompareBuffers(const Ranks& ranks, finding::Document& document);     // LT611
void CompareCollectives(const Ranks& ranks, finding::Document& document); // LT617
// ranks_time.cc
void CompareTimes(const Ranks& ranks, finding::Document& document);       // LT613
// ranks_memory.cc
void CompareMemory(const Ranks& ranks, finding::Document& document);      // LT618

// ranks_ends.cc
void CompareEnds(const Ranks& ranks, finding::Document& document);  // LT616

}  // namespace lowtide::cli
