#include "lint/lsp_workspace.h"

#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "lint/driver_diagnose.h"
#include "lint/driver_fix.h"
#include "lint/driver_parallel.h"

namespace lowtide::lint {

LspWorkspace::LspWorkspace(DriverOptions options)
    : options_(std::move(options)),
      line_(ChoiceOf(options_)),
      configs_(std::make_unique<ConfigFinder>(options_.isolated)) {}

std::vector<std::string> LspWorkspace::Load(const std::vector<std::string>& folders) {
  Discovered found = Discover(folders, options_.discover, *configs_);
  std::vector<ModuleFacts> facts(found.targets.size());
  std::vector<std::string> problems(found.targets.size());
  ParallelFor(facts.size(), Jobs(options_.jobs), [&](size_t i) {
    const Target& target = found.targets[i];
    std::error_code error;
    if (target.path.ends_with(".ipynb") ||
        std::filesystem::file_size(target.absolute, error) > options_.max_bytes)
      return;
    try {
      facts[i] = Analyze({target.absolute, ReadFile(target.absolute)});
    } catch (const std::exception& failure) {
      problems[i] = failure.what();
    }
  });
  for (size_t i = 0; i < facts.size(); ++i)
    facts_.insert_or_assign(found.targets[i].absolute, std::move(facts[i]));
  index_is_current_ = false;
  std::vector<std::string> told = std::move(found.problems);
  told.insert(told.end(), configs_->problems().begin(), configs_->problems().end());
  for (auto& problem : problems) {
    if (!problem.empty()) told.push_back(std::move(problem));
  }
  return told;
}

void LspWorkspace::Update(const std::string& path, std::string_view text) {
  index_ = Index();  // it points into the facts
  facts_.insert_or_assign(path, Analyze({path, text}));
  index_is_current_ = false;
}

void LspWorkspace::Forget(const std::string& path) {
  index_ = Index();
  facts_.erase(path);
  index_is_current_ = false;
}

void LspWorkspace::ForgetConfiguration() { configs_ = std::make_unique<ConfigFinder>(options_.isolated); }

const Index& LspWorkspace::CurrentIndex() {
  if (!index_is_current_) {
    std::vector<const ModuleFacts*> all;
    for (const auto& [path, facts] : facts_) all.push_back(&facts);
    index_ = Index(all);
    index_is_current_ = true;
  }
  return index_;
}

std::vector<Diagnostic> LspWorkspace::Check(const std::string& path, std::string_view text) {
  if (text.size() > options_.max_bytes) return {};
  if (!path.empty() && !IsWanted(path, options_.discover, *configs_)) return {};
  const Config& config =
      configs_->For(path.empty() ? AbsolutePath(".") : std::filesystem::path(path).parent_path().string());
  Selection selection;
  try {
    selection = SelectFor(config, line_, path);
  } catch (const Error&) {
    selection = SelectFor(Config{}, line_, path);
  }
  size_t suppressed = 0;
  return Diagnose(text, Analyze({path, text}), CurrentIndex(), selection, options_.respect_noqa, suppressed);
}

std::string LspWorkspace::FixedText(const std::string& path, std::string_view text) {
  FixRules rules;
  rules.check = [&](std::string_view source) { return Check(path, source); };
  rules.apply = [](Fixing& fixing, const std::vector<Edit>& edits) {
    fixing.source = fixing.stored = ApplyEdits(fixing.source, edits);
    return true;
  };
  Fixing fixing{std::string(text), std::string(text)};
  FixAll(fixing, rules);
  return fixing.source;
}

}  // namespace lowtide::lint
