#include "lint/driver_fix.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <tree_sitter/api.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/mapped_file.h"

extern "C" const TSLanguage* tree_sitter_python(void);

namespace lowtide::lint {
namespace {

constexpr int kMostRounds = 20;

bool Overlap(const Edit& a, const Edit& b) {
  if (a.start == a.end && b.start == b.end) return a.start == b.start;
  return a.start < b.end && b.start < a.end;
}

// What stays of a fix when lines move: enough to know it again after it was withdrawn.
std::string Name(const Diagnostic& diagnostic, std::string_view source) {
  std::string name = diagnostic.code;
  for (const Edit& edit : diagnostic.fix->edits) {
    name += fmt::format("\x01{}\x02{}", source.substr(edit.start, edit.end - edit.start), edit.replacement);
  }
  return name;
}

bool Fits(const Fix& fix, size_t size) {
  uint32_t last = 0;
  for (const Edit& edit : fix.edits) {
    if (edit.start < last || edit.end < edit.start || edit.end > size) return false;
    last = edit.end;
  }
  return !fix.edits.empty();
}

struct ByPlace {
  bool operator()(const Edit& a, const Edit& b) const {
    return std::tie(a.start, a.end, a.replacement) < std::tie(b.start, b.end, b.replacement);
  }
};

// The fixes of a round and their edits; two fixes may share an edit (the same new import).
struct Round {
  std::vector<const Diagnostic*> chosen;
  std::set<Edit, ByPlace> edits;

  bool Add(const Diagnostic& diagnostic) {
    for (const Edit& edit : diagnostic.fix->edits) {
      if (!edits.count(edit) && Hits(edit)) return false;
    }
    edits.insert(diagnostic.fix->edits.begin(), diagnostic.fix->edits.end());
    chosen.push_back(&diagnostic);
    return true;
  }

 private:
  // The edits do not overlap each other: only those around the new one's beginning can overlap it.
  bool Hits(const Edit& edit) const {
    auto after = edits.lower_bound(Edit{edit.start, 0, ""});
    for (auto it = after; it != edits.end() && it->start <= edit.end; ++it) {
      if (Overlap(*it, edit)) return true;
    }
    return after != edits.begin() && Overlap(*std::prev(after), edit);
  }
};

// Carries the fixes out unless that breaks the file; the texts stay as they were then.
bool Try(Fixing& fixing, const FixRules& rules, const std::vector<const Diagnostic*>& chosen) {
  Round round;
  for (const Diagnostic* one : chosen) round.Add(*one);
  Fixing next = fixing;
  if (!rules.apply(next, {round.edits.begin(), round.edits.end()})) return false;
  if (SyntaxErrors(next.source) > SyntaxErrors(fixing.source)) return false;
  next.fixed += round.chosen.size();
  fixing = std::move(next);
  return true;
}

// Finds the bad ones by halves. The later half goes first, so that offsets in the earlier one stay right; a
// fix that reaches behind `limit`, where the text has changed already, waits for the next round.
void TryHalves(Fixing& fixing, const FixRules& rules, std::vector<const Diagnostic*> chosen, uint32_t& limit,
               std::vector<const Diagnostic*>& bad) {
  std::erase_if(chosen, [&](const Diagnostic* one) { return one->fix->edits.back().end > limit; });
  if (chosen.empty()) return;
  if (Try(fixing, rules, chosen)) {
    for (const Diagnostic* one : chosen) limit = std::min(limit, one->fix->edits.front().start);
  } else if (chosen.size() == 1) {
    bad.push_back(chosen[0]);
  } else {
    auto middle = chosen.begin() + static_cast<long>(chosen.size() / 2);
    TryHalves(fixing, rules, {middle, chosen.end()}, limit, bad);
    TryHalves(fixing, rules, {chosen.begin(), middle}, limit, bad);
  }
}

}  // namespace

std::string ApplyEdits(std::string_view text, const std::vector<Edit>& edits) {
  std::string out;
  size_t at = 0;
  for (const Edit& edit : edits) {
    out += text.substr(at, edit.start - at);
    out += edit.replacement;
    at = edit.end;
  }
  out += text.substr(at);
  return out;
}

size_t SyntaxErrors(std::string_view text) {
  std::unique_ptr<TSParser, decltype(&ts_parser_delete)> parser(ts_parser_new(), ts_parser_delete);
  ts_parser_set_language(parser.get(), tree_sitter_python());
  std::unique_ptr<TSTree, decltype(&ts_tree_delete)> tree(
      ts_parser_parse_string(parser.get(), nullptr, text.data(), static_cast<uint32_t>(text.size())),
      ts_tree_delete);
  if (!tree) return SIZE_MAX;
  size_t errors = 0;
  TSTreeCursor cursor = ts_tree_cursor_new(ts_tree_root_node(tree.get()));
  for (bool more = true; more;) {
    TSNode node = ts_tree_cursor_current_node(&cursor);
    bool is_error = ts_node_is_missing(node) || ts_node_symbol(node) == static_cast<TSSymbol>(-1);
    errors += is_error ? 1 + (ts_node_end_byte(node) - ts_node_start_byte(node)) : 0;
    if (!is_error && ts_node_has_error(node) && ts_tree_cursor_goto_first_child(&cursor)) continue;
    while ((more = ts_tree_cursor_goto_next_sibling(&cursor)) == false &&
           ts_tree_cursor_goto_parent(&cursor)) {
    }
  }
  ts_tree_cursor_delete(&cursor);
  return errors;
}

void FixAll(Fixing& fixing, const FixRules& rules) {
  std::set<std::string> withdrawn;
  for (int rounds = 0; rounds < kMostRounds; ++rounds) {
    std::vector<Diagnostic> diagnostics = rules.check(fixing.source);
    Round round;
    for (const Diagnostic& diagnostic : diagnostics) {
      if (!diagnostic.fix || !(diagnostic.fix->safe || rules.unsafe)) continue;
      if (!Fits(*diagnostic.fix, fixing.source.size()) || withdrawn.count(Name(diagnostic, fixing.source)))
        continue;
      round.Add(diagnostic);
    }
    if (round.chosen.empty()) break;
    const std::string source = fixing.source;
    uint32_t limit = UINT32_MAX;
    std::vector<const Diagnostic*> bad;
    TryHalves(fixing, rules, round.chosen, limit, bad);
    for (const Diagnostic* one : bad) withdrawn.insert(Name(*one, source));
  }
  fixing.withdrawn += withdrawn.size();
}

void ReplaceFile(const std::string& path, std::string_view old, std::string_view content) {
  std::error_code error;
  std::string real = std::filesystem::canonical(path, error).string();
  if (error) throw Error("cannot fix: " + error.message(), "check the path", path);
  if (::access(real.c_str(), W_OK) != 0)
    throw Error("cannot fix: the file is read-only", "allow writing, or use --diff", path);
  if (ReadFile(real) != old)
    throw Error("not fixed: the file changed while it was checked", "run it again", path);
  struct stat info {};
  bool known = ::stat(real.c_str(), &info) == 0;
  WriteFileAtomically(real, content);
  if (known) {
    [[maybe_unused]] int ignored = ::chmod(real.c_str(), info.st_mode & 07777);
  }
}

}  // namespace lowtide::lint
