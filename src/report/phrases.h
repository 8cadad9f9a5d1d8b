#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finding/document.h"

namespace lowtide::report {

enum class Phrase : int {
#define PHRASE(name, english, chinese) name,
#include "report/phrases.inc"
#undef PHRASE
};

struct Translation {
  const char* name;
  const char* english;
  const char* chinese;
};

// Every phrase in the order of the enum; ends with a null name.
extern const Translation kTranslations[];

// The fixed words of all reports in one language, so that the terminal, the page and the live view say the same.
class Words {
 public:
  // "zh" is Chinese, anything else English.
  explicit Words(std::string_view lang) : chinese_(lang == "zh") {}

  bool chinese() const { return chinese_; }
  const char* Get(Phrase phrase) const;
  template <typename... Args>
  std::string Say(Phrase phrase, const Args&... args) const {
    return fmt::format(fmt::runtime(Get(phrase)), args...);
  }
  // `chinese` where it is wanted and there; else `english`.
  const std::string& Pick(const std::string& english, const std::string& chinese) const {
    return chinese_ && !chinese.empty() ? chinese : english;
  }

  std::string Pool(const std::string& pool) const;        // "CPU tensors", "cuda:0"
  std::string Verdict(const std::string& verdict) const;  // "LEAK", "healthy"
  std::string During(const std::string& phase) const;     // "validation"
  std::string Severity(finding::Severity severity) const;
  std::string Role(const std::string& role) const;

  std::string Ended(const std::string& ended) const;      // RankView::ended
  std::string ExitCode(int code) const;  // "exit code 143 (SIGTERM)"
  std::string Duration(double seconds) const;             // "3 min 20 s"
  std::string Objects(uint64_t count) const;              // "1 object", "300 objects"
  std::string OnRanks(const std::vector<int>& ranks) const;  // ", rank 3", ", ranks 0-3, 7"; `ranks` is sorted

  // "+40.9 KB/step"; the pool says whether bytes or things are counted.
  std::string Rate(const std::string& pool, double rate, bool plus) const;
  // One rate, or "+40.1 KB/step to +41.2 KB/step" where they differ as written; "" without any.
  std::string Rates(const std::string& pool, std::optional<double> least, std::optional<double> most) const;
  static std::string Amount(const std::string& pool, double amount);

 private:
  bool chinese_;
};

}  // namespace lowtide::report
