#include "lint/driver_diagnose.h"

#include <algorithm>

#include "lint/suppress.h"

namespace lowtide::lint {

std::vector<Diagnostic> Diagnose(std::string_view source, const ModuleFacts& facts, const Index& index,
                                 const Selection& selection, bool respect_noqa, size_t& suppressed) {
  std::vector<Directive> directives;
  if (respect_noqa) directives = FindDirectives(source);
  if (directives.empty()) return Resolve(facts, index, selection.rules);
  std::vector<Diagnostic> all = Resolve(facts, index, RuleSet::All());
  auto count_selected = [&] {
    return static_cast<size_t>(std::count_if(all.begin(), all.end(),
                                             [&](const Diagnostic& one) { return selection.Has(one.code); }));
  };
  size_t before = count_selected(), taken = 0;
  std::vector<Diagnostic> unused = Suppress(all, directives, source, taken);
  suppressed += before - count_selected();
  std::erase_if(all, [&](const Diagnostic& one) { return !selection.Has(one.code); });
  if (selection.unused_suppressions) all.insert(all.end(), unused.begin(), unused.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const Diagnostic& a, const Diagnostic& b) { return a.start < b.start; });
  return all;
}

}  // namespace lowtide::lint
