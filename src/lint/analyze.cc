#include <algorithm>
#include <tuple>

#include "lint/facts.h"
#include "lint/index.h"
#include "lint/report.h"
#include "lint/scan.h"

namespace lowtide::lint {

ModuleFacts::ModuleFacts() : data_(std::make_unique<Data>()) {}
ModuleFacts::~ModuleFacts() = default;
ModuleFacts::ModuleFacts(ModuleFacts&&) noexcept = default;
ModuleFacts& ModuleFacts::operator=(ModuleFacts&&) noexcept = default;
const std::string& ModuleFacts::path() const { return data_->path; }

ModuleFacts Analyze(const Source& source) {
  ModuleFacts facts;
  facts.data().path = source.path;
  constexpr size_t kLargestFile = 256 << 20;
  if (source.text.size() > kLargestFile) return facts;
  std::vector<Range> ranges = RelevantRanges(source.text);
  if (ranges.empty()) return facts;
  // Some rules look at every pair of statements of a kind. No program that people write comes near this.
  constexpr size_t kMostCode = 2 << 20;
  size_t code = 0;
  for (const Range& range : ranges) code += range.end - range.start;
  if (code > kMostCode) return facts;
  if (ranges.size() == 1 && ranges[0].start == 0 && ranges[0].end == source.text.size()) ranges.clear();
  Module module(source, ranges);
  if (module.empty()) return facts;
  Flow flow(module);
  Scope scope{module, flow};
  facts.data() = Summarize(module, flow);
  for (int i = 0; i < kRuleCount; ++i) {
    Reporter reporter(scope, static_cast<uint8_t>(i), kRules[i].code, facts.data().pending);
    kRules[i].check(scope, reporter);
  }
  return facts;
}

std::vector<Diagnostic> Resolve(const ModuleFacts& facts, const Index& index, const RuleSet& rules) {
  std::vector<Diagnostic> found;
  for (const Pending& pending : facts.data().pending) {
    if (!rules.HasIndex(pending.rule)) continue;
    bool stands = std::all_of(pending.queries.begin(), pending.queries.end(),
                              [&](const Query& query) { return Holds(query, facts.data(), index.data()); });
    if (stands) found.push_back(pending.diagnostic);
  }
  auto key = [](const Diagnostic& d) { return std::tie(d.start, d.end, d.code); };
  std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  found.erase(std::unique(found.begin(), found.end(), [&](const auto& a, const auto& b) { return key(a) == key(b); }), found.end());
  return found;
}

std::vector<Diagnostic> Check(const Source& source, const Index& index, const RuleSet& rules) {
  return Resolve(Analyze(source), index, rules);
}

}  // namespace lowtide::lint
