#include "cli/ranks_facts.h"

#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/mapped_file.h"

namespace lowtide::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kMostLines = 10'000;

RankFacts ReadOne(const std::string& file) {
  RankFacts facts;
  facts.rank = -1;
  std::istringstream lines(ReadFile(file));
  size_t count = 0;
  for (std::string line; count < kMostLines && std::getline(lines, line); ++count) {
    json row = json::parse(line, nullptr, false);
    if (!row.is_object()) continue;
    std::string kind = TextOf(row, "kind");
    if (kind == "rank" || kind == "alone") {
      facts.rank = static_cast<int>(NumberOf(row, "rank", -1));
      facts.world = static_cast<int>(NumberOf(row, "world"));
      facts.pid = static_cast<int>(NumberOf(row, "pid"));
      facts.host = TextOf(row, "host");
      facts.began = NumberOf(row, "wall");
      facts.stack_signal = static_cast<int>(NumberOf(row, "stack_signal"));
      facts.stack_file = fs::path(TextOf(row, "stack_file")).filename().string();
      facts.alone = kind == "alone";
    }
    facts.rows[kind].push_back(std::move(row));
  }
  return facts;
}

}  // namespace

const std::vector<json>& RankFacts::Of(const std::string& kind) const {
  static const std::vector<json> kNone;
  auto at = rows.find(kind);
  return at == rows.end() ? kNone : at->second;
}

const json& RankFacts::Last(const std::string& kind) const {
  static const json kEmpty = json::object();
  const auto& found = Of(kind);
  return found.empty() ? kEmpty : found.back();
}

double NumberOf(const json& row, const char* key, double otherwise) {
  auto at = row.find(key);
  return at != row.end() && at->is_number() ? at->get<double>() : otherwise;
}

std::string TextOf(const json& row, const char* key) {
  auto at = row.find(key);
  return at != row.end() && at->is_string() ? at->get<std::string>() : "";
}

bool FlagOf(const json& row, const char* key) {
  auto at = row.find(key);
  return at != row.end() && at->is_boolean() && at->get<bool>();
}

std::map<int, RankFacts> ReadFacts(const std::string& folder) {
  std::map<int, RankFacts> out;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with("facts-rank") || !name.ends_with(".jsonl")) continue;
    try {
      RankFacts facts = ReadOne(entry.path().string());
      auto known = out.find(facts.rank);
      if (facts.rank < 0 || (known != out.end() && known->second.began > facts.began)) continue;
      out[facts.rank] = std::move(facts);
    } catch (const Error&) {
      // A file that cannot be read tells nothing; the other ranks' are compared without it.
    }
  }
  return out;
}

}  // namespace lowtide::cli
