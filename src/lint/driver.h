#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lint/discover.h"
#include "lint/lint.h"

namespace lowtide::lint {

// What the command line asks for; it wins over pyproject.toml.
struct DriverOptions {
  std::vector<std::string> paths;  // files and folders; "-": standard input
  std::string stdin_filename;      // the name that standard input is checked under
  DiscoverOptions discover;
  bool isolated = false;  // read no pyproject.toml

  std::optional<std::vector<std::string>> select;
  std::vector<std::string> extend_select, ignore;
  std::vector<std::pair<std::string, std::string>>
      per_file_ignores;  // pattern, code; on top of the configured ones
  std::optional<bool> preview;
  bool respect_noqa = true;

  enum class Fixing { kNone, kWrite, kDiff };
  Fixing fixing = Fixing::kNone;
  bool unsafe_fixes = false;

  std::string baseline;        // file; empty: the configured one
  std::string write_baseline;  // file to write; everything found goes into it
  std::string cache_folder;    // empty: $XDG_CACHE_HOME/lowtide
  bool cache = true;
  int jobs = 0;                   // 0: as many as there are cores
  uint64_t max_bytes = 16 << 20;  // larger files are told and left alone
};

// A diagnostic where the user sees it: for notebooks line, column and edits' lines are within the cell.
struct Located {
  Diagnostic diagnostic;            // line and end_line of the checked source
  int cell = 0;                     // from 1; 0: no notebook
  uint32_t line = 1, end_line = 1;  // within the cell
  std::string fingerprint;          // the same when lines move; unique within a run
};

struct FileReport {
  std::string path;  // as shown
  std::string absolute;
  std::vector<Located> items;
  std::string text;        // the checked source (a notebook's code cells joined); empty without items
  size_t fixed = 0;        // edits' diagnostics carried out, or in the diff
  std::string diff;        // unified, with DriverOptions::Fixing::kDiff
  std::string fixed_text;  // standard input with --fix: what goes to standard output
};

struct Report {
  std::vector<FileReport> files;       // those with items, fixes or a diff; sorted by path
  std::vector<std::string> problems;   // work that could not be done: exit code 2
  std::vector<std::string> notes;      // for standard error
  std::optional<std::string> fail_on;  // from the configuration nearest to the first path
  size_t checked = 0, fixed = 0, suppressed = 0, in_baseline = 0, fixable = 0, unsafe_fixable = 0;
  size_t cached = 0;  // files whose facts came from the cache
};

// Finds the files, reads what each says (from the cache where its content is known), joins that into one
// index and resolves each file's suspicions against it; fixes when asked. The result does not depend on the
// number of threads. Throws Error for options that make no sense (an unknown code, a baseline that cannot be
// read).
Report Run(const DriverOptions& options);

// "1.ipynb:cell 3" or the path.
std::string ShownPath(const FileReport& file, const Located& item);

}  // namespace lowtide::lint
