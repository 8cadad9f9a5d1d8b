#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lowtide::lint {

// `[tool.lowtide.lint]` of one pyproject.toml. What the file does not set stays empty.
struct Config {
  std::string file;    // the pyproject.toml; empty: none was found, everything is default
  std::string folder;  // where it lies: patterns are relative to it
  std::optional<std::vector<std::string>> select;
  std::vector<std::string> extend_select, ignore;
  std::vector<std::pair<std::string, std::vector<std::string>>> per_file_ignores;  // pattern -> codes
  std::optional<std::vector<std::string>> exclude;  // replaces the default excludes
  std::vector<std::string> extend_exclude;
  std::optional<bool> preview;
  std::optional<std::string> fail_on;   // note, warning, error
  std::optional<std::string> baseline;  // relative to `folder`
  bool respect_gitignore = true;
};

// Reads one pyproject.toml (any path). nullopt: it has no [tool.lowtide.lint]. Throws Error on broken TOML,
// unknown keys and wrong types, with the line in the message.
std::optional<Config> ReadConfig(const std::string& file);

// The nearest pyproject.toml with [tool.lowtide.lint], upwards from a folder; each file is read once. A
// broken one counts as "all defaults", and its message is kept for the user.
class ConfigFinder {
 public:
  explicit ConfigFinder(bool isolated) : isolated_(isolated) {}

  // `folder` is absolute. The reference lives as long as the finder.
  const Config& For(const std::string& folder);
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  bool isolated_;
  Config defaults_;
  std::map<std::string, std::shared_ptr<const Config>> by_folder_;
  std::vector<std::string> problems_;
};

}  // namespace lowtide::lint
