// The linter's core on arbitrary bytes: parse, flow, facts, rules, cache, index. Two files when the input has a form feed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lint/lint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lowtide::lint;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  size_t cut = text.find('\f');
  std::string_view second = cut == std::string_view::npos ? std::string_view() : text.substr(cut + 1);
  text = text.substr(0, cut);
  ModuleFacts a = Analyze({"a.py", text}), b = Analyze({"b.py", second});
  Index index({&a, &b});
  for (const ModuleFacts* facts : {&a, &b}) {
    std::string_view source = facts == &a ? text : second;
    for (const Diagnostic& d : Resolve(*facts, index, RuleSet::All())) {
      if (d.start > d.end || d.end > source.size() || d.line == 0 || d.column == 0) std::abort();
      if (!d.fix) continue;
      uint32_t last = 0;
      for (const Edit& edit : d.fix->edits) {
        if (edit.start < last || edit.end < edit.start || edit.end > source.size()) std::abort();
        last = edit.end;
      }
    }
    auto back = ModuleFacts::Deserialize(facts->Serialize());
    if (!back || back->Serialize() != facts->Serialize()) std::abort();
  }
  ModuleFacts::Deserialize(text);
  return 0;
}
