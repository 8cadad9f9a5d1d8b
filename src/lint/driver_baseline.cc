// The only file that reads baselines' JSON.
#include "lint/driver_baseline.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "finding/version.h"
#include "lint/suppress_scan.h"

namespace lowtide::lint {
namespace {

std::string WithoutBlanks(std::string_view line) {
  std::string out;
  for (char c : line) {
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n' && c != '\f') out += c;
  }
  return out;
}

std::string Relative(const std::string& absolute, const std::string& root) {
  bool below = absolute.size() > root.size() && absolute.starts_with(root) && absolute[root.size()] == '/';
  return below ? absolute.substr(root.size() + 1) : absolute;
}

}  // namespace

std::set<std::string> ReadBaseline(const std::string& path) {
  std::string text = ReadFile(path);
  const std::string remedy = "write a new one with --write-baseline";
  auto document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded()) throw Error("is no baseline: broken JSON", remedy, path);
  if (!document.is_object() || !document.contains("lint_baseline") || !document["lint_baseline"].is_array()) {
    throw Error("is no baseline: it has no list `lint_baseline`", remedy, path);
  }
  if (!document.contains("schema") || document["schema"] != 1)
    throw Error("is a baseline of another version", remedy, path);
  std::set<std::string> known;
  for (const auto& item : document["lint_baseline"]) {
    if (!item.is_object() || !item.contains("fingerprint") || !item["fingerprint"].is_string()) {
      throw Error("is no baseline: an entry has no fingerprint", remedy, path);
    }
    known.insert(item["fingerprint"].get<std::string>());
  }
  return known;
}

std::string WriteBaseline(const std::vector<FileReport>& files) {
  std::vector<std::string> lines;
  for (const FileReport& file : files) {
    for (const Located& item : file.items) {
      JsonWriter json;
      json.BeginObject()
          .Field("code", item.diagnostic.code)
          .Field("file", ShownPath(file, item))
          .Field("line", item.line)
          .Field("fingerprint", item.fingerprint)
          .EndObject();
      lines.push_back(json.Take());
    }
  }
  std::string out = fmt::format("{{\"lowtide\": \"{}\", \"schema\": 1, \"lint_baseline\": [", kVersion);
  for (size_t i = 0; i < lines.size(); ++i) out += (i ? ",\n  " : "\n  ") + lines[i];
  return out + "\n]}\n";
}

void Fingerprint(std::vector<FileReport>& files, const std::string& root) {
  for (FileReport& file : files) {
    std::vector<uint32_t> starts = LineStarts(file.text);
    std::string name = Relative(file.absolute, root);
    std::unordered_map<std::string, int> seen;
    for (Located& item : file.items) {
      size_t line = std::min<size_t>(item.diagnostic.line, starts.size());
      size_t end = line < starts.size() ? starts[line] : file.text.size();
      std::string text =
          WithoutBlanks(std::string_view(file.text).substr(starts[line - 1], end - starts[line - 1]));
      int nth = ++seen[item.diagnostic.code + text];
      item.fingerprint = finding::Fingerprint(item.diagnostic.code, {name, text, fmt::format("{}", nth)});
    }
  }
}

}  // namespace lowtide::lint
