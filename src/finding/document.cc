#include "finding/document.h"

#include "base/json.h"
#include "finding/json.h"
#include "finding/version.h"

namespace lowtide::finding {
namespace {

void Write(JsonWriter& json, const VerdictRow& row) {
  json.BeginObject()
      .Field("pool", row.pool)
      .Field("rank", row.rank)
      .Field("verdict", row.verdict)
      .Field("state", row.state)
      .Field("watch", row.watch)
      .Field("alarm", row.alarm)
      .Field("confidence", row.confidence)
      .Field("bytes_per_step", row.bytes_per_step);
  json.Key("interval");
  if (row.interval) {
    json.BeginArray().Value(row.interval->first).Value(row.interval->second).EndArray();
  } else {
    json.Null();
  }
  json.Field("onset_step", row.onset_step)
      .Field("phase", row.phase)
      .Field("steps_to_oom", row.steps_to_oom)
      .Field("seconds_to_oom", row.seconds_to_oom)
      .Field("steps_seen", row.steps_seen)
      .Field("steps_needed", row.steps_needed)
      .Field("reason", row.reason)
      .Field("unnamed", row.unnamed.empty() ? std::nullopt : std::optional(row.unnamed))
      .Field("explained_by", row.explained_by.empty() ? std::nullopt : std::optional(row.explained_by))
      .Field("fingerprint", row.fingerprint.empty() ? std::nullopt : std::optional(row.fingerprint))
      .EndObject();
}

void Write(JsonWriter& json, const HolderRow& row) {
  json.BeginObject()
      .Field("rank", row.rank)
      .Field("pool", row.pool)
      .Field("path", row.path)
      .Field("root", row.root)
      .Field("type", row.type)
      .Field("retained_bytes", row.retained_bytes)
      .Field("objects", row.objects)
      .Field("bytes_per_step", row.bytes_per_step)
      .Field("file", row.file.empty() ? std::nullopt : std::optional(row.file))
      .Field("line", row.line ? std::optional(row.line) : std::nullopt)
      .Field("via_autograd", row.via_autograd)
      .Field("code", row.code.empty() ? std::nullopt : std::optional(row.code))
      .Field("help", row.help.empty() ? std::nullopt : std::optional(row.help))
      .EndObject();
}

}  // namespace

void WriteFinding(JsonWriter& json, const Finding& finding) {
  json.BeginObject()
      .Field("code", finding.code)
      .Field("severity", SeverityName(finding.severity))
      .Field("message", finding.message);
  json.Key("where").BeginArray();
  for (const Where& where : finding.where) {
    json.BeginObject()
        .Field("file", where.file.empty() ? std::nullopt : std::optional(where.file))
        .Field("line", where.line ? std::optional(where.line) : std::nullopt)
        .Field("column", where.column ? std::optional(where.column) : std::nullopt);
    if (!where.object_path.empty()) json.Field("object_path", where.object_path);
    if (where.first_step) json.Field("first_step", where.first_step);
    if (where.last_step) json.Field("last_step", where.last_step);
    json.EndObject();
  }
  json.EndArray().Key("evidence").BeginArray();
  for (const Evidence& item : finding.evidence) {
    json.BeginObject().Field("name", item.name).Field("value", item.value).Field("unit", item.unit).EndObject();
  }
  json.EndArray()
      .Field("help", finding.help)
      .Field("fix", finding.fix)
      .Field("fingerprint", finding.fingerprint)
      .EndObject();
}

std::string ToJson(const Document& document) {
  JsonWriter json(1);
  json.BeginObject().Field("lowtide", kVersion).Field("schema", 1);
  json.Key("verdicts").BeginArray();
  for (const VerdictRow& row : document.verdicts) Write(json, row);
  json.EndArray().Key("holders").BeginArray();
  for (const HolderRow& row : document.holders) Write(json, row);
  json.EndArray().Key("findings").BeginArray();
  for (const Finding& finding : document.findings) WriteFinding(json, finding);
  json.EndArray().EndObject();
  return json.Take() + "\n";
}

}  // namespace lowtide::finding
