#include "lint/driver_fix.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <tree_sitter/api.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

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

// The fixes of this round, and their edits joined and sorted; two fixes may share an edit (the same new import).
struct Round {
  std::vector<const Diagnostic*> chosen;
  std::vector<Edit> edits;

  bool Add(const Diagnostic& diagnostic) {
    std::vector<Edit> fresh;
    for (const Edit& edit : diagnostic.fix->edits) {
      if (std::find(edits.begin(), edits.end(), edit) != edits.end()) continue;
      if (std::any_of(edits.begin(), edits.end(), [&](const Edit& other) { return Overlap(edit, other); })) return false;
      fresh.push_back(edit);
    }
    edits.insert(edits.end(), fresh.begin(), fresh.end());
    std::sort(edits.begin(), edits.end(), [](const Edit& a, const Edit& b) { return std::pair(a.start, a.end) < std::pair(b.start, b.end); });
    chosen.push_back(&diagnostic);
    return true;
  }
};

// Carries the round out unless that breaks the file; the texts stay as they were then.
bool Try(Fixing& fixing, const FixRules& rules, const Round& round) {
  Fixing next = fixing;
  if (!rules.apply(next, round.edits)) return false;
  if (SyntaxErrors(next.source) > SyntaxErrors(fixing.source)) return false;
  next.fixed += round.chosen.size();
  fixing = std::move(next);
  return true;
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
      ts_parser_parse_string(parser.get(), nullptr, text.data(), static_cast<uint32_t>(text.size())), ts_tree_delete);
  if (!tree) return SIZE_MAX;
  size_t errors = 0;
  TSTreeCursor cursor = ts_tree_cursor_new(ts_tree_root_node(tree.get()));
  for (bool more = true; more;) {
    TSNode node = ts_tree_cursor_current_node(&cursor);
    bool is_error = ts_node_is_missing(node) || ts_node_symbol(node) == static_cast<TSSymbol>(-1);
    errors += is_error ? 1 + (ts_node_end_byte(node) - ts_node_start_byte(node)) : 0;
    if (!is_error && ts_node_has_error(node) && ts_tree_cursor_goto_first_child(&cursor)) continue;
    while ((more = ts_tree_cursor_goto_next_sibling(&cursor)) == false && ts_tree_cursor_goto_parent(&cursor)) {
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
      if (!Fits(*diagnostic.fix, fixing.source.size()) || withdrawn.count(Name(diagnostic, fixing.source))) continue;
      round.Add(diagnostic);
    }
    if (round.chosen.empty()) break;
    if (Try(fixing, rules, round)) continue;
    // One of them is bad: each by itself, from the end so that offsets before stay right.
    const std::string source = fixing.source;
    uint32_t untouched = static_cast<uint32_t>(source.size()) + 1;
    for (auto it = round.chosen.rbegin(); it != round.chosen.rend(); ++it) {
      if ((*it)->fix->edits.back().end > untouched) continue;  // next round
      Round alone;
      alone.Add(**it);
      if (Try(fixing, rules, alone)) untouched = (*it)->fix->edits.front().start;
      else withdrawn.insert(Name(**it, source));
    }
  }
  fixing.withdrawn += withdrawn.size();
}

void ReplaceFile(const std::string& path, std::string_view old, std::string_view content) {
  std::error_code error;
  std::string real = std::filesystem::canonical(path, error).string();
  if (error) throw Error("cannot fix: " + error.message(), "check the path", path);
  if (::access(real.c_str(), W_OK) != 0) throw Error("cannot fix: the file is read-only", "allow writing, or use --diff", path);
  if (ReadFile(real) != old) throw Error("not fixed: the file changed while it was checked", "run it again", path);
  struct stat info {};
  bool known = ::stat(real.c_str(), &info) == 0;
  WriteFileAtomically(real, content);
  if (known) {
    [[maybe_unused]] int ignored = ::chmod(real.c_str(), info.st_mode & 07777);
  }
}

}  // namespace lowtide::lint
