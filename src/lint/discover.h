#pragma once

#include <string>
#include <vector>

#include "lint/config.h"

namespace lowtide::lint {

// A file to check.
struct Target {
  std::string path;  // as shown to the user: relative to where the user is, or as it was named
  std::string absolute;
  const Config* config = nullptr;  // lives as long as the ConfigFinder
};

struct DiscoverOptions {
  std::vector<std::string> exclude;         // --exclude: replaces the configured ones
  std::vector<std::string> extend_exclude;  // --extend-exclude: on top of them
  bool has_exclude = false;
  bool force_exclude = false;  // excludes hold for files that are named one by one, too (pre-commit)
  bool respect_gitignore = true;
};

struct Discovered {
  std::vector<Target> targets;        // sorted by path, each once
  std::vector<std::string> problems;  // what could not be read: exit code 2
  std::vector<std::string> notes;     // what the user should know: a folder without Python files
};

// Folders that nobody wants checked unless named: version control, environments, caches, build outputs.
// `build`, `dist` and `venv` are left out too, unless they are Python packages.
extern const char* const kDefaultExcludes[];  // ends with nullptr

// *.py, *.pyw and *.ipynb below the folders in `paths`, and the files in `paths` whatever their names.
// Follows links to files, not to folders (a link cannot make it loop). Honours .gitignore files from the
// repository's root downwards and .git/info/exclude.
Discovered Discover(const std::vector<std::string>& paths, const DiscoverOptions& options,
                    ConfigFinder& configs);

// Whether one file may be checked (stdin with a file name, an editor's file): not excluded, not ignored.
bool IsWanted(const std::string& absolute, const DiscoverOptions& options, ConfigFinder& configs);

// `path` made absolute and without `.` and `..`, links kept.
std::string AbsolutePath(const std::string& path);

}  // namespace lowtide::lint
