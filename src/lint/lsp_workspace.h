#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lint/driver.h"
#include "lint/driver_select.h"

namespace lowtide::lint {

// What a language server knows of the files on disk: facts of each, their index, the configuration.
class LspWorkspace {
 public:
  // Throws Error for options that name unknown rules.
  explicit LspWorkspace(DriverOptions options);

  // Reads the files below the folders; problems (unreadable files, broken configuration) are returned, for
  // the log.
  std::vector<std::string> Load(const std::vector<std::string>& folders);
  // Puts one file's text in place of what was known of it. `path` is absolute.
  void Update(const std::string& path, std::string_view text);
  void Forget(const std::string& path);
  // Reads the configuration afresh at the next question.
  void ForgetConfiguration();

  // What is wrong in `text` as the file `path`; nothing when the configuration excludes it.
  std::vector<Diagnostic> Check(const std::string& path, std::string_view text);
  // `text` with every safe fix carried out.
  std::string FixedText(const std::string& path, std::string_view text);

 private:
  const Index& CurrentIndex();

  DriverOptions options_;
  LineChoice line_;
  std::unique_ptr<ConfigFinder> configs_;
  std::map<std::string, ModuleFacts> facts_;  // by absolute path
  Index index_;
  bool index_is_current_ = false;
};

}  // namespace lowtide::lint
