#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lowtide::finding {

enum class Severity { kNote, kWarning, kError };

const char* SeverityName(Severity severity);                      // "note", "warning", "error"
std::optional<Severity> ParseSeverity(const std::string& name);  // the reverse

// A place. What does not apply stays empty: a source span (1-based line and column), a range of steps, an object path.
struct Where {
  std::string file;
  int line = 0;
  int column = 0;
  std::string object_path;
  std::optional<uint64_t> first_step, last_step;
  int end_line = 0, end_column = 0;  // where a source span ends; the column is the first one behind it
};

struct Evidence {
  std::string name;
  double value = 0;
  std::string unit;  // "B", "B/step", "steps", "s", "" for counts
};

// One thing to tell the user; every tool ends in these.
struct Finding {
  std::string code;  // LTNNN, see catalogue.h
  Severity severity = Severity::kWarning;
  std::string message;            // one sentence: what happened and how sure we are
  std::string message_zh;         // the same in Chinese; empty: the English one is shown
  std::vector<Where> where;       // the first is primary
  std::vector<Evidence> evidence;
  std::string help;               // what to do next
  std::string help_zh;
  std::optional<std::string> fix;  // replacement text, when one edit cures it
  std::string fingerprint;         // same cause, same fingerprint; Fingerprint() makes it
};

// 16 hex digits of a hash over the code and `parts` (what identifies the cause: file name, object path, pool ...).
std::string Fingerprint(const std::string& code, const std::vector<std::string>& parts);

}  // namespace lowtide::finding
