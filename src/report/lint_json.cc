#include <algorithm>

#include "base/json.h"
#include "lint/suppress_scan.h"
#include "report/lint_report.h"
#include "report/sarif.h"

namespace lowtide::report {
namespace {

struct Position {
  uint32_t line, column;
};

Position PositionOf(const std::string& text, const std::vector<uint32_t>& starts, uint32_t byte) {
  auto line = std::upper_bound(starts.begin(), starts.end(), byte) - starts.begin();
  uint32_t start = starts[static_cast<size_t>(line - 1)];
  auto points =
      std::count_if(text.begin() + start, text.begin() + byte, [](char c) { return (c & 0xC0) != 0x80; });
  return {static_cast<uint32_t>(line), static_cast<uint32_t>(points + 1)};
}

// An edit in bytes of the checked source, and in lines and columns as the finding has them.
void WriteEdit(JsonWriter& json, const lint::FileReport& file, const lint::Located& item,
               const lint::Edit& edit, const std::vector<uint32_t>& starts) {
  uint32_t size = static_cast<uint32_t>(file.text.size());
  Position from = PositionOf(file.text, starts, std::min(edit.start, size)),
           to = PositionOf(file.text, starts, std::min(edit.end, size));
  uint32_t shift = item.diagnostic.line - item.line;  // lines of the cells before
  json.BeginObject()
      .Field("line", from.line - shift)
      .Field("column", from.column)
      .Field("end_line", to.line - shift)
      .Field("end_column", to.column)
      .Field("start_byte", edit.start)
      .Field("end_byte", edit.end)
      .Field("content", edit.replacement)
      .EndObject();
}

}  // namespace

std::string LintJson(const lint::Report& report) {
  JsonWriter json(1);
  json.BeginArray();
  for (const lint::FileReport& file : report.files) {
    std::vector<uint32_t> starts = lint::LineStarts(file.text);
    for (const lint::Located& item : file.items) {
      const lint::Diagnostic& one = item.diagnostic;
      json.BeginObject().Field("code", one.code).Field("file", file.path);
      if (item.cell) json.Field("cell", item.cell);
      json.Field("line", item.line)
          .Field("column", one.column)
          .Field("end_line", item.end_line)
          .Field("end_column", one.end_column)
          .Field("message", one.message)
          .Field("help", one.help)
          .Key("fix");
      if (one.fix) {
        json.BeginObject()
            .Field("safe", one.fix->safe)
            .Field("title", one.fix->title)
            .Key("edits")
            .BeginArray();
        for (const lint::Edit& edit : one.fix->edits) WriteEdit(json, file, item, edit, starts);
        json.EndArray().EndObject();
      } else {
        json.Null();
      }
      json.EndObject();
    }
  }
  json.EndArray();
  return json.Take() + "\n";
}

std::string LintSarif(const lint::Report& report) {
  std::vector<finding::Finding> findings;
  for (const lint::FileReport& file : report.files) {
    for (const lint::Located& item : file.items) {
      finding::Finding one;
      one.code = item.diagnostic.code;
      one.severity = item.diagnostic.severity;
      one.message = item.diagnostic.message;
      one.help = item.diagnostic.help;
      one.fingerprint = item.fingerprint;
      finding::Where where;
      where.file = file.absolute;
      where.line = static_cast<int>(item.line);
      where.column = static_cast<int>(item.diagnostic.column);
      where.end_line = static_cast<int>(item.end_line);
      where.end_column = static_cast<int>(item.diagnostic.end_column);
      one.where.push_back(std::move(where));
      findings.push_back(std::move(one));
    }
  }
  return ToSarif(findings, lint::AbsolutePath("."));
}

}  // namespace lowtide::report
