#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lowtide::lint {

// Whether `path` (slash-separated, no leading slash) matches `pattern` as gitignore(5) has it: `*` and `?`
// stop at slashes, `[...]` is a set, `**/` is any number of folders, a final `/**` everything inside. Time is
// at most |pattern|^2 * |path|: a hostile pattern cannot hang it.
bool GlobMatch(std::string_view pattern, std::string_view path);

// The patterns of one .gitignore, or of an `exclude` list, that hold below one folder.
class IgnoreRules {
 public:
  enum class Match { kNone, kIgnore, kKeep };

  // One pattern a line: comments, `!` (keep), a final `/` (folders only), a leading or inner `/` (anchored).
  static IgnoreRules Parse(std::string_view text);
  void Add(std::string_view line);

  // The last pattern that matches `path`, relative to the rules' folder, decides.
  Match Of(std::string_view path, bool is_folder) const;
  bool empty() const { return patterns_.empty(); }

 private:
  struct Pattern {
    std::string glob;
    bool keep = false;
    bool folders_only = false;
    bool anchored = false;  // else it matches the last component alone
  };
  std::vector<Pattern> patterns_;
};

}  // namespace lowtide::lint
