#include "cli/rank_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/mapped_file.h"

namespace lowtide::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string Text(const json& object, const char* key) {
  auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

double Number(const json& object, const char* key) {
  auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : 0;
}

finding::HolderRow Holder(const json& object) {
  finding::HolderRow row;
  row.rank = static_cast<int>(Number(object, "rank"));
  row.pool = Text(object, "pool");
  row.path = Text(object, "path");
  row.root = Text(object, "root");
  row.type = Text(object, "type");
  row.retained_bytes = static_cast<uint64_t>(std::max(0.0, Number(object, "retained_bytes")));
  row.objects = static_cast<uint64_t>(std::max(0.0, Number(object, "objects")));
  row.bytes_per_step = Number(object, "bytes_per_step");
  row.file = Text(object, "file");
  row.line = static_cast<int>(Number(object, "line"));
  auto autograd = object.find("via_autograd");
  row.via_autograd = autograd != object.end() && autograd->is_boolean() && autograd->get<bool>();
  row.code = Text(object, "code");
  row.help = Text(object, "help");
  row.help_zh = Text(object, "help_zh");
  return row;
}

finding::Where Place(const json& object) {
  finding::Where where;
  where.file = Text(object, "file");
  where.line = static_cast<int>(Number(object, "line"));
  where.column = static_cast<int>(Number(object, "column"));
  where.object_path = Text(object, "object_path");
  return where;
}

finding::Finding FindingOf(const json& object) {
  finding::Finding out;
  out.code = Text(object, "code");
  out.severity = finding::ParseSeverity(Text(object, "severity")).value_or(finding::Severity::kWarning);
  out.message = Text(object, "message");
  out.message_zh = Text(object, "message_zh");
  out.help = Text(object, "help");
  out.help_zh = Text(object, "help_zh");
  if (std::string fix = Text(object, "fix"); !fix.empty()) out.fix = fix;
  out.fingerprint = Text(object, "fingerprint");
  if (auto places = object.find("where"); places != object.end() && places->is_array()) {
    for (const json& place : *places) {
      if (place.is_object()) out.where.push_back(Place(place));
    }
  }
  if (auto items = object.find("evidence"); items != object.end() && items->is_array()) {
    for (const json& item : *items) {
      if (item.is_object()) out.evidence.push_back({Text(item, "name"), Number(item, "value"), Text(item, "unit")});
    }
  }
  return out;
}

finding::Finding Damaged(const std::string& file, const std::string& what) {
  finding::Finding out;
  out.code = "LT903";
  out.severity = finding::Severity::kNote;
  out.message = fmt::format("{} could not be read ({}); what it said is missing from this report", file, what);
  out.message_zh = fmt::format("{} 无法读取（{}）；本报告缺少其中的内容", file, what);
  out.help = "the process may have been killed while it wrote; the rings beside it are whole";
  out.help_zh = "进程可能在写入时被终止；旁边的环形文件仍然完整";
  out.where = {{file, 0, 0, "", {}, {}}};
  out.fingerprint = finding::Fingerprint(out.code, {file});
  return out;
}

CensusFacts Facts(const json& object) {
  CensusFacts facts;
  facts.rank = static_cast<int>(Number(object, "rank"));
  facts.first_step = static_cast<uint64_t>(std::max(0.0, Number(object, "first_step")));
  facts.second_step = static_cast<uint64_t>(std::max(0.0, Number(object, "second_step")));
  auto at_exit = object.find("at_exit");
  facts.at_exit = at_exit != object.end() && at_exit->is_boolean() && at_exit->get<bool>();
  facts.trouble = Text(object, "trouble");
  return facts;
}

void ReadHolders(const std::string& file, finding::Document& document, std::vector<CensusFacts>& censuses) {
  json parsed = json::parse(ReadFile(file), nullptr, false);
  const json* rows = parsed.is_object() && parsed.contains("holders") ? &parsed["holders"] : &parsed;
  if (parsed.is_discarded() || !rows->is_array()) {
    document.findings.push_back(Damaged(file, "not a JSON array"));
    return;
  }
  for (const json& row : *rows) {
    if (row.is_object()) document.holders.push_back(Holder(row));
  }
  if (parsed.is_object()) censuses.push_back(Facts(parsed));
}

// A process tells of the same cause again as its figures grow: the newest word counts.
void Keep(finding::Finding finding, finding::Document& document) {
  auto same = std::find_if(document.findings.begin(), document.findings.end(), [&](const finding::Finding& other) {
    return !finding.fingerprint.empty() && other.code == finding.code && other.fingerprint == finding.fingerprint;
  });
  if (same == document.findings.end()) {
    document.findings.push_back(std::move(finding));
  } else {
    *same = std::move(finding);
  }
}

void ReadFindings(const std::string& file, finding::Document& document) {
  std::istringstream lines(ReadFile(file));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    json parsed = json::parse(line, nullptr, false);
    if (parsed.is_object() && parsed.contains("code")) {
      Keep(FindingOf(parsed), document);
    } else {
      document.findings.push_back(Damaged(file, fmt::format("line {} is not a finding", number)));
    }
  }
}

bool Matches(const std::string& name, const std::string& prefix, const std::string& suffix) {
  return name.size() > prefix.size() + suffix.size() && name.rfind(prefix, 0) == 0 &&
         name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

}  // namespace

void ForgetRankFiles(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    bool left = Matches(name, "holders-", ".json") || Matches(name, "findings-", ".jsonl") || Matches(name, "facts-", ".jsonl") ||
                Matches(name, "stacks-", ".txt") || Matches(name, "census-worker-", ".txt") || Matches(name, "driver-", ".csv") || Matches(name, "trouble-", ".txt");
    std::error_code ignored;
    if (left) fs::remove(entry.path(), ignored);
  }
}

std::vector<CensusFacts> ReadRankFiles(const std::string& folder, finding::Document& document) {
  std::error_code error;
  std::vector<CensusFacts> censuses;
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    std::string name = fs::path(file).filename().string();
    try {
      if (Matches(name, "holders-", ".json")) ReadHolders(file, document, censuses);
      if (Matches(name, "findings-", ".jsonl")) ReadFindings(file, document);
    } catch (const Error& problem) {
      document.findings.push_back(Damaged(file, problem.message()));
    }
  }
  std::stable_sort(document.holders.begin(), document.holders.end(),
                   [](const auto& a, const auto& b) { return a.bytes_per_step > b.bytes_per_step; });
  return censuses;
}

}  // namespace lowtide::cli
