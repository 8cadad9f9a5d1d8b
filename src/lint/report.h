#pragma once

#include <string>
#include <vector>

#include "lint/facts.h"

namespace lowtide::lint {

// One text in both languages; there is none without its Chinese.
struct Said {
  Said(std::string english, std::string chinese) : en(std::move(english)), zh(std::move(chinese)) {}
  std::string en, zh;
};

// Where a rule leaves its suspicions.
class Reporter {
 public:
  Reporter(const Scope& scope, uint8_t rule, const char* code, std::vector<Pending>& out)
      : scope_(scope), rule_(rule), code_(code), out_(out) {}

  void Drop() { out_.pop_back(); }  // the last one added does not stand after all
  Pending& Add(NodeId node, finding::Severity severity, Said message, Said help);
  // The span is the first line of a long statement, or the node.
  Pending& AddAt(uint32_t start, uint32_t end, finding::Severity severity, Said message, Said help);

 private:
  const Scope& scope_;
  uint8_t rule_;
  const char* code_;
  std::vector<Pending>& out_;
};

// The value must hold a graph: nothing to ask when this file says so; otherwise what other files say of the callee.
// False when it surely does not.
bool NeedAttached(const Scope& scope, const Value& value, Pending& pending);
bool MayBeAttached(const Scope& scope, const Value& value);

Fix AppendText(const Module& m, NodeId node, std::string_view suffix, bool safe, Said title);
Fix WrapText(const Module& m, NodeId node, std::string_view before, std::string_view after, bool safe, Said title);
Fix InsertLineBefore(const Module& m, NodeId statement, std::string_view line, bool safe, Said title);

}  // namespace lowtide::lint
