#include "report/sarif.h"

#include <filesystem>
#include <map>

#include "base/json.h"
#include "finding/catalogue.h"
#include "finding/pages.h"
#include "finding/version.h"

namespace lowtide::report {
namespace {

// RFC 3986: everything but unreserved characters and '/' is percent-encoded.
std::string UriPath(const std::string& path) {
  static const char* kHex = "0123456789ABCDEF";
  std::string out;
  for (unsigned char c : path) {
    if (std::isalnum(c) || c == '/' || c == '-' || c == '.' || c == '_' || c == '~') {
      out += static_cast<char>(c);
    } else {
      ((out += '%') += kHex[c >> 4]) += kHex[c & 15];
    }
  }
  return out;
}

std::string Uri(const std::string& file, const std::string& root) {
  std::filesystem::path path(file);
  if (!path.is_absolute()) return UriPath(path.lexically_normal().string());
  if (!root.empty()) {
    auto relative = path.lexically_relative(root);
    if (!relative.empty() && *relative.begin() != "..") return UriPath(relative.string());
  }
  return "file://" + UriPath(file);
}

void WriteLocation(JsonWriter& json, const finding::Where& where, const std::string& root) {
  json.BeginObject();
  if (!where.file.empty()) {
    json.Key("physicalLocation").BeginObject().Key("artifactLocation").BeginObject();
    json.Field("uri", Uri(where.file, root)).EndObject();
    if (where.line > 0) {
      json.Key("region").BeginObject().Field("startLine", where.line);
      if (where.column > 0) json.Field("startColumn", where.column);
      if (where.end_line >= where.line) json.Field("endLine", where.end_line);
      if (where.end_line >= where.line && where.end_column > 0) json.Field("endColumn", where.end_column);
      json.EndObject();
    }
    json.EndObject();
  }
  if (!where.object_path.empty()) {
    json.Key("logicalLocations").BeginArray().BeginObject();
    json.Field("fullyQualifiedName", where.object_path).EndObject().EndArray();
  }
  json.EndObject();
}

void WriteRule(JsonWriter& json, const std::string& id) {
  json.BeginObject().Field("id", id);
  if (const finding::Code* code = finding::FindCode(id)) {
    json.Field("name", code->name).Key("shortDescription").BeginObject().Field("text", code->title).EndObject();
    json.Key("fullDescription").BeginObject().Field("text", code->title).EndObject();
    if (const char* page = finding::FindPage(code->code)) {
      json.Key("help").BeginObject().Field("text", code->title).Field("markdown", page).EndObject();
    }
    json.Key("defaultConfiguration").BeginObject().Field("level", finding::SeverityName(code->severity)).EndObject();
  }
  json.EndObject();
}

}  // namespace

std::string ToSarif(const std::vector<finding::Finding>& findings, const std::string& root) {
  std::map<std::string, size_t> rules;
  for (const auto& finding : findings) rules.emplace(finding.code, 0);
  JsonWriter json(1);
  json.BeginObject()
      .Field("$schema", "https://json.schemastore.org/sarif-2.1.0.json")
      .Field("version", "2.1.0")
      .Key("runs").BeginArray().BeginObject().Key("tool").BeginObject().Key("driver").BeginObject()
      .Field("name", "lowtide").Field("version", kVersion).Key("rules").BeginArray();
  size_t next = 0;
  for (auto& [id, index] : rules) {
    index = next++;
    WriteRule(json, id);
  }
  json.EndArray().EndObject().EndObject().Field("columnKind", "unicodeCodePoints").Key("results").BeginArray();
  for (const auto& finding : findings) {
    json.BeginObject()
        .Field("ruleId", finding.code)
        .Field("ruleIndex", rules[finding.code])
        .Field("level", finding::SeverityName(finding.severity));
    std::string text = finding.message + (finding.help.empty() ? "" : "\n" + finding.help);
    json.Key("message").BeginObject().Field("text", text).EndObject();
    json.Key("locations").BeginArray();
    if (!finding.where.empty()) WriteLocation(json, finding.where[0], root);
    json.EndArray();
    if (!finding.fingerprint.empty()) {
      json.Key("partialFingerprints").BeginObject().Field("lowtide/v1", finding.fingerprint).EndObject();
    }
    json.EndObject();
  }
  json.EndArray().EndObject().EndArray().EndObject();
  return json.Take() + "\n";
}

}  // namespace lowtide::report
