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

namespace {

// The file computes with another framework, whose names are alike (Gluon's backward, Keras' evaluate), and not with torch.
bool OfOtherFramework(const Module& module) {
  bool other = false;
  for (const auto& [name, target] : module.imports()) {
    std::string_view root = std::string_view(target).substr(0, target.find('.'));
    if (root.starts_with("torch") || root == "pytorch_lightning" || root == "lightning" || root == "accelerate") return false;
    other |= root == "mxnet" || root == "tensorflow" || root == "keras" || root == "paddle" || root == "jax" || root == "flax" || root == "mindspore" ||
             root == "oneflow" || root == "megengine" || root == "jittor" || root == "tinygrad" || root == "mlx";
  }
  return other;
}

}  // namespace

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
  if (OfOtherFramework(module)) return facts;
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
