#include "lint/glob.h"

namespace lowtide::lint {
namespace {

constexpr size_t kNone = std::string_view::npos;

// Whether `c` is in the set that opens at pattern[at] ('['); `at` moves behind the set. A set without an end
// is a plain bracket.
bool InSet(std::string_view pattern, size_t& at, char c) {
  size_t i = at + 1;
  bool negated = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (negated) ++i;
  bool found = false;
  for (size_t first = i; i < pattern.size() && (pattern[i] != ']' || i == first); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
      found |= pattern[i] <= c && c <= pattern[i + 2];
      i += 2;
    } else {
      found |= pattern[i] == c;
    }
  }
  if (i >= pattern.size()) {
    ++at;
    return c == '[';
  }
  at = i + 1;
  return found != negated && c != '/';
}

// One pattern element against one character; `at` moves on when it matches.
bool MatchOne(std::string_view pattern, size_t& at, char c) {
  if (at >= pattern.size()) return false;
  switch (pattern[at]) {
    case '?':
      if (c == '/') return false;
      ++at;
      return true;
    case '[': {
      size_t next = at;
      if (!InSet(pattern, next, c)) return false;
      at = next;
      return true;
    }
    case '\\':
      if (at + 1 < pattern.size() && pattern[at + 1] == c) {
        at += 2;
        return true;
      }
      return false;
    default:
      if (pattern[at] != c) return false;
      ++at;
      return true;
  }
}

}  // namespace

// Two return points, one for the last `*` and one for the last `**`: on a mismatch the nearer one takes one
// more character (a whole folder for `**/`), and only the last of each kind ever has to be tried again.
bool GlobMatch(std::string_view pattern, std::string_view path) {
  size_t p = 0, s = 0;
  size_t star_p = kNone, star_s = 0, deep_p = kNone, deep_s = 0;
  while (s < path.size() || p < pattern.size()) {
    if (pattern.substr(p, 2) == "**" && (p == 0 || pattern[p - 1] == '/')) {
      if (p + 2 == pattern.size()) return true;
      if (pattern[p + 2] == '/') {
        p += 3;
        deep_p = p, deep_s = s, star_p = kNone;
        continue;
      }
    }
    if (p < pattern.size() && pattern[p] == '*') {
      while (p < pattern.size() && pattern[p] == '*') ++p;
      star_p = p, star_s = s;
      continue;
    }
    if (s < path.size() && MatchOne(pattern, p, path[s])) {
      ++s;
      continue;
    }
    if (star_p != kNone && star_s < path.size() && path[star_s] != '/') {
      p = star_p, s = ++star_s;
      continue;
    }
    if (deep_p == kNone) return false;
    size_t slash = path.find('/', deep_s);
    if (slash == kNone) return false;
    p = deep_p, s = deep_s = slash + 1, star_p = kNone;
  }
  return true;
}

void IgnoreRules::Add(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  while (!line.empty() && line.back() == ' ' && !line.ends_with("\\ ")) line.remove_suffix(1);
  if (line.empty() || line[0] == '#') return;
  Pattern pattern;
  if (line[0] == '!') {
    pattern.keep = true;
    line.remove_prefix(1);
  }
  if (!line.empty() && line.back() == '/') {
    pattern.folders_only = true;
    line.remove_suffix(1);
  }
  pattern.anchored = line.find('/') != kNone;
  if (!line.empty() && line[0] == '/') line.remove_prefix(1);
  if (line.empty()) return;
  pattern.glob = line;
  patterns_.push_back(std::move(pattern));
}

IgnoreRules IgnoreRules::Parse(std::string_view text) {
  IgnoreRules rules;
  while (!text.empty()) {
    size_t end = text.find('\n');
    rules.Add(text.substr(0, end));
    text.remove_prefix(end == kNone ? text.size() : end + 1);
  }
  return rules;
}

IgnoreRules::Match IgnoreRules::Of(std::string_view path, bool is_folder) const {
  std::string_view name = path.substr(path.rfind('/') == kNone ? 0 : path.rfind('/') + 1);
  for (auto it = patterns_.rbegin(); it != patterns_.rend(); ++it) {
    if (it->folders_only && !is_folder) continue;
    if (GlobMatch(it->glob, it->anchored ? path : name)) return it->keep ? Match::kKeep : Match::kIgnore;
  }
  return Match::kNone;
}

}  // namespace lowtide::lint
