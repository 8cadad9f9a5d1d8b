#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finding/finding.h"

// The static checker's core: pure functions over source text. One parse per file does both halves: what the file
// tells other files (its summary) and what the rules suspect in it. Whether a suspicion stands may depend on other
// files (a caller's no_grad, a meter's update(), set_epoch elsewhere), so it is resolved against the project's index:
//
//   ModuleFacts facts = Analyze({path, text});           // any thread, any order; cache by content hash
//   Index index({&facts_a, &facts_b, ...});              // once, after all files
//   for (auto& d : Resolve(facts_a, index, rules)) ...   // any thread
//
// Nothing here reads files, prints, or throws for bad input; broken syntax is tolerated, text that is no Python gives
// no diagnostics.
namespace lowtide::lint {

struct Source {
  std::string path;       // as it shall be reported; '/' separates folders
  std::string_view text;  // bytes of the file; UTF-8 expected, anything tolerated
};

// Replace bytes [start, end) of the source.
struct Edit {
  uint32_t start = 0, end = 0;
  std::string replacement;
  bool operator==(const Edit&) const = default;
};

// `safe`: the program's results stay the same, only memory or time changes. Edits are sorted and do not overlap.
struct Fix {
  bool safe = false;
  std::string title;  // "call .item()"
  std::vector<Edit> edits;
  std::string title_zh;
};

struct Diagnostic {
  std::string code;  // "LT101"
  finding::Severity severity = finding::Severity::kWarning;
  std::string message, message_zh;
  std::string help, help_zh;
  uint32_t start = 0, end = 0;                                   // bytes
  uint32_t line = 1, column = 1, end_line = 1, end_column = 1;  // from 1; columns count code points
  std::optional<Fix> fix;
};

enum class Default : uint8_t { kOn, kPreview, kOff };

struct Scope;    // one parsed file with its facts: facts.h
class Reporter;  // takes what a rule suspects: report.h
class Index;

// One line of the table per rule; rules/ltNNN_name.cc holds the functions.
struct Rule {
  const char* code;
  const char* name;
  Default enabled;
  void (*check)(const Scope& scope, Reporter& report);
};

extern const Rule kRules[];
extern const int kRuleCount;

// Which rules report. Codes, prefixes ("LT1", "LT11") and "ALL".
class RuleSet {
 public:
  static RuleSet Defaults(bool preview = false);
  static RuleSet All();
  static RuleSet None() { return {}; }
  // False when `selector` names no rule.
  bool Add(std::string_view selector);
  bool Remove(std::string_view selector);
  bool Has(std::string_view code) const;
  bool HasIndex(int rule) const { return bits_[rule]; }

 private:
  bool Set(std::string_view selector, bool value);
  std::bitset<64> bits_;
};

// What one file says: its summary for the index and its suspicions. Immutable once made.
class ModuleFacts {
 public:
  ModuleFacts();
  ~ModuleFacts();
  ModuleFacts(ModuleFacts&&) noexcept;
  ModuleFacts& operator=(ModuleFacts&&) noexcept;

  const std::string& path() const;
  // Bytes for a cache, valid for this version of lowtide alone (they begin with a hash of it and of the checker's sources).
  std::string Serialize() const;
  static std::optional<ModuleFacts> Deserialize(std::string_view bytes);

  struct Data;
  const Data& data() const { return *data_; }
  Data& data() { return *data_; }

 private:
  std::unique_ptr<Data> data_;
};

// Thread-safe and pure. Files over 256 MB, files with over 2 MB of code that concerns training (generated, surely), and
// text that does not look like it concerns training give empty facts.
ModuleFacts Analyze(const Source& source);

// The project's names and calls. Keeps pointers to the facts, which must outlive it.
class Index {
 public:
  Index();
  explicit Index(const std::vector<const ModuleFacts*>& modules);
  ~Index();
  Index(Index&&) noexcept;
  Index& operator=(Index&&) noexcept;

  struct Data;
  const Data& data() const { return *data_; }

 private:
  std::unique_ptr<Data> data_;
};

// The suspicions that stand, sorted by position, without repeats. Thread-safe and pure.
std::vector<Diagnostic> Resolve(const ModuleFacts& facts, const Index& index, const RuleSet& rules);

// Analyze and Resolve in one: for one file edited while the project's index stands (`index` may hold its old facts).
std::vector<Diagnostic> Check(const Source& source, const Index& index, const RuleSet& rules);

}  // namespace lowtide::lint
