#include "lint/driver_select.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "lint/glob.h"
#include "lint/suppress.h"

namespace lowtide::lint {
namespace {

std::vector<std::string> AllCodes() {
  std::vector<std::string> codes;
  for (int i = 0; i < kRuleCount; ++i) codes.emplace_back(kRules[i].code);
  codes.emplace_back(kUnusedSuppression);
  return codes;
}

bool Matches(const std::string& selector, const std::string& code) {
  return selector == "ALL" || (!selector.empty() && code.starts_with(selector));
}

// How specific the best selector for `code` is: 0 for ALL, else its length; -1: none.
int Specificity(const std::vector<std::string>& selectors, const std::string& code) {
  int best = -1;
  for (const auto& selector : selectors) {
    if (Matches(selector, code))
      best = std::max(best, selector == "ALL" ? 0 : static_cast<int>(selector.size()));
  }
  return best;
}

bool OnByDefault(const std::string& code, bool preview) {
  for (int i = 0; i < kRuleCount; ++i) {
    if (code != kRules[i].code) continue;
    return kRules[i].enabled == Default::kOn || (preview && kRules[i].enabled == Default::kPreview);
  }
  return true;  // LT950
}

}  // namespace

bool Selection::Has(const std::string& code) const {
  return code == kUnusedSuppression ? unused_suppressions : rules.Has(code);
}

void CheckSelector(const std::string& selector) {
  auto codes = AllCodes();
  if (std::any_of(codes.begin(), codes.end(),
                  [&](const std::string& code) { return Matches(selector, code); }))
    return;
  throw Error(fmt::format("there is no rule `{}`", selector),
              "use a code (LT101), a prefix (LT1) or ALL; `lowtide explain` lists the codes");
}

Selection Select(const std::vector<Choice>& layers, bool preview) {
  for (const Choice& layer : layers) {
    for (const auto& selector : layer.select.value_or(std::vector<std::string>{})) CheckSelector(selector);
    for (const auto& selector : layer.extend_select) CheckSelector(selector);
    for (const auto& selector : layer.ignore) CheckSelector(selector);
  }
  Selection out;
  for (const std::string& code : AllCodes()) {
    bool on = OnByDefault(code, preview);
    for (const Choice& layer : layers) {
      int chosen = layer.select ? Specificity(*layer.select, code) : -1;
      if (layer.select) on = chosen >= 0;
      chosen = std::max(chosen, Specificity(layer.extend_select, code));
      int ignored = Specificity(layer.ignore, code);
      if (chosen >= 0) on = true;
      if (ignored >= 0 && ignored >= chosen) on = false;
    }
    if (code == kUnusedSuppression) {
      out.unused_suppressions = on;
    } else if (on) {
      out.rules.Add(code);
    }
  }
  return out;
}

Selection ForFile(const Selection& selection,
                  const std::vector<std::pair<std::string, std::vector<std::string>>>& ignores,
                  const std::string& relative) {
  Selection out = selection;
  for (const auto& [pattern, selectors] : ignores) {
    bool negated = pattern.starts_with("!");
    IgnoreRules rule;
    rule.Add(negated ? pattern.substr(1) : pattern);
    bool matches = false;  // the file itself, or a folder above it
    for (size_t at = relative.find('/'); !matches && at != std::string::npos;
         at = relative.find('/', at + 1)) {
      matches = rule.Of(std::string_view(relative).substr(0, at), true) == IgnoreRules::Match::kIgnore;
    }
    matches = matches || rule.Of(relative, false) == IgnoreRules::Match::kIgnore;
    if (matches == negated) continue;
    for (const std::string& code : AllCodes()) {
      if (Specificity(selectors, code) < 0) continue;
      if (code == kUnusedSuppression)
        out.unused_suppressions = false;
      else
        out.rules.Remove(code);
    }
  }
  return out;
}

LineChoice ChoiceOf(const DriverOptions& options) {
  LineChoice line{{options.select, options.extend_select, options.ignore}, options.preview, {}};
  Select({line.choice}, false);
  for (const auto& [pattern, code] : options.per_file_ignores) {
    CheckSelector(code);
    line.per_file_ignores.push_back({pattern, {code}});
  }
  return line;
}

Selection SelectFor(const Config& config, const LineChoice& line, const std::string& absolute) {
  for (const auto& [pattern, codes] : config.per_file_ignores) {
    for (const auto& code : codes) CheckSelector(code);
  }
  Choice configured{config.select, config.extend_select, config.ignore};
  Selection out = Select({configured, line.choice}, line.preview.value_or(config.preview.value_or(false)));
  auto below = [&](const std::string& folder) {
    return std::filesystem::path(absolute).lexically_relative(folder).string();
  };
  if (!config.per_file_ignores.empty()) out = ForFile(out, config.per_file_ignores, below(config.folder));
  if (!line.per_file_ignores.empty()) out = ForFile(out, line.per_file_ignores, below(AbsolutePath(".")));
  return out;
}

}  // namespace lowtide::lint
