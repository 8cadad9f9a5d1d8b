#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lowtide::cli {

// What one rank left in facts-rank<N>-<host>-<pid>.jsonl: one JSON object a line, told apart by "kind"
// (python/lowtide/_ranks*.py writes them). Lines that are damaged or cut are passed over.
struct RankFacts {
  int rank = 0, world = 0, pid = 0;
  std::string host;
  double began = 0;         // seconds since 1970
  int stack_signal = 0;     // 0: the rank shows no stacks
  std::string stack_file;   // name in the run's folder
  bool alone = false;       // a launcher made it one of several, and it never joined them
  std::map<std::string, std::vector<nlohmann::json>> rows;  // by kind, in order

  const std::vector<nlohmann::json>& Of(const std::string& kind) const;
  // The last row of a kind, or an empty object.
  const nlohmann::json& Last(const std::string& kind) const;
};

// By rank; of a rank that was started again, the newest process.
std::map<int, RankFacts> ReadFacts(const std::string& folder);

// Fields that may be missing or of another type.
double NumberOf(const nlohmann::json& row, const char* key, double otherwise = 0);
std::string TextOf(const nlohmann::json& row, const char* key);
bool FlagOf(const nlohmann::json& row, const char* key);

}  // namespace lowtide::cli
