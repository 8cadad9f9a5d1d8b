#include "lint/discover.h"

#include <dirent.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "lint/glob.h"

namespace lowtide::lint {

const char* const kDefaultExcludes[] = {".bzr",
                                        ".direnv",
                                        ".eggs",
                                        ".git",
                                        ".git-rewrite",
                                        ".hg",
                                        ".ipynb_checkpoints",
                                        ".mypy_cache",
                                        ".nox",
                                        ".pants.d",
                                        ".pyenv",
                                        ".pytest_cache",
                                        ".pytype",
                                        ".ruff_cache",
                                        ".svn",
                                        ".tox",
                                        ".venv",
                                        ".vscode",
                                        "__pycache__",
                                        "__pypackages__",
                                        ".lowtide-cache",
                                        "node_modules",
                                        "site-packages",
                                        nullptr};

namespace {

bool IsPythonName(std::string_view name) {
  return name.ends_with(".py") || name.ends_with(".ipynb") || name.ends_with(".pyw");
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string Join(const std::string& folder, std::string_view name) {
  if (folder.empty() || folder == ".") return std::string(name);
  return folder.back() == '/' ? folder + std::string(name) : folder + "/" + std::string(name);
}

// `path` relative to `folder` when below it; the whole of it without its first slash otherwise.
std::string_view Below(std::string_view path, std::string_view folder) {
  if (folder == "/") return path.substr(1);
  if (path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/') {
    return path.substr(folder.size() + 1);
  }
  return path.starts_with("/") ? path.substr(1) : path;
}

// The .gitignore rules in force in a folder: its own, then those of the folders above, up to the repository's
// root.
struct GitRules {
  std::string folder;  // absolute
  IgnoreRules rules;
  std::shared_ptr<const GitRules> above;

  bool Ignores(const std::string& absolute, bool is_folder) const {
    for (const GitRules* at = this; at; at = at->above.get()) {
      auto match = at->rules.Of(Below(absolute, at->folder), is_folder);
      if (match != IgnoreRules::Match::kNone) return match == IgnoreRules::Match::kIgnore;
    }
    return false;
  }
};
using GitRulesPtr = std::shared_ptr<const GitRules>;

GitRulesPtr AddRules(GitRulesPtr above, const std::string& folder, const std::string& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > (16 << 20)) return above;
  try {
    auto rules = IgnoreRules::Parse(ReadFile(file));
    if (rules.empty()) return above;
    return std::make_shared<const GitRules>(GitRules{folder, std::move(rules), std::move(above)});
  } catch (const Error&) {
    return above;  // unreadable: as if it were not there, like git
  }
}

// `folder`'s own rules come on top; a repository's root (.git) starts afresh.
GitRulesPtr EnterFolder(GitRulesPtr above, const std::string& folder) {
  if (Exists(Join(folder, ".git"))) above = AddRules(nullptr, folder, Join(folder, ".git/info/exclude"));
  return AddRules(above, folder, Join(folder, ".gitignore"));
}

// Rules that hold in `folder` because of the folders above it: only inside a repository.
GitRulesPtr RulesAbove(const std::string& folder) {
  std::vector<std::string> chain;
  for (std::string at = folder; at != "/" && !at.empty();) {
    if (Exists(Join(at, ".git"))) {
      if (at == folder) return nullptr;
      chain.push_back(at);
      GitRulesPtr rules;
      for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
        if (*it != folder) rules = EnterFolder(rules, *it);
      }
      return rules;
    }
    chain.push_back(at);
    at = std::filesystem::path(at).parent_path().string();
  }
  return nullptr;
}

class Walk {
 public:
  Walk(const DiscoverOptions& options, ConfigFinder& configs, Discovered& out)
      : options_(options), configs_(configs), out_(out) {
    for (const char* const* name = kDefaultExcludes; *name; ++name) defaults_.Add(*name);
    for (const auto& pattern : options.exclude) exclude_.Add(pattern);
    for (const auto& pattern : options.extend_exclude) extend_exclude_.Add(pattern);
    cwd_ = AbsolutePath(".");
  }

  void Named(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      out_.problems.push_back(Error(fmt::format("cannot open: {}", std::strerror(errno)),
                                    "check the path and its permissions", path)
                                  .what());
      return;
    }
    std::string absolute = AbsolutePath(path);
    if (S_ISDIR(info.st_mode)) {
      size_t before = out_.targets.size(), problems = out_.problems.size();
      if (options_.force_exclude && !Wanted(absolute, true)) return;
      GitRulesPtr rules = options_.respect_gitignore ? RulesAbove(absolute) : nullptr;
      std::string shown = std::filesystem::path(path).lexically_normal().string();
      if (shown.size() > 1 && shown.back() == '/') shown.pop_back();
      Folder(shown, absolute, rules);
      if (out_.targets.size() == before && out_.problems.size() == problems) {
        out_.notes.push_back(fmt::format("{}: no Python files or notebooks in this folder", path));
      }
    } else {
      if (options_.force_exclude && !Wanted(absolute, false)) return;
      Add(std::filesystem::path(path).lexically_normal().string(), absolute);
    }
  }

  // Neither the file nor a folder above it (up to the configuration's or the repository's) is excluded or
  // ignored.
  bool Wanted(const std::string& absolute, bool is_folder) {
    std::string folder = std::filesystem::path(absolute).parent_path().string();
    const Config& config = configs_.For(folder);
    std::string base = config.file.empty() ? cwd_ : config.folder;
    std::string below(Below(absolute, base));
    for (size_t at = below.find('/'); at != std::string::npos; at = below.find('/', at + 1)) {
      std::string part = Join(base, below.substr(0, at));
      if (absolute.starts_with(base) && Excluded(config, part, true)) return false;
    }
    if (Excluded(config, absolute, is_folder)) return false;
    if (!options_.respect_gitignore || !config.respect_gitignore) return true;
    GitRulesPtr rules = EnterFolder(RulesAbove(folder), folder);
    for (std::string at = absolute; rules && at != "/";) {
      if (rules->Ignores(at, at != absolute || is_folder)) return false;
      at = std::filesystem::path(at).parent_path().string();
      if (at.size() <= rules->folder.size() || Exists(Join(at, ".git"))) break;
    }
    return true;
  }

 private:
  void Add(std::string path, std::string absolute) {
    if (!seen_.insert(absolute).second) return;
    const Config& config = configs_.For(std::filesystem::path(absolute).parent_path().string());
    out_.targets.push_back({std::move(path), std::move(absolute), &config});
  }

  bool Excluded(const Config& config, const std::string& absolute, bool is_folder) const {
    std::string_view name = std::string_view(absolute).substr(absolute.rfind('/') + 1);
    auto in = [&](const IgnoreRules& rules, const std::string& base) {
      return rules.Of(Below(absolute, base), is_folder) == IgnoreRules::Match::kIgnore;
    };
    if (in(extend_exclude_, cwd_)) return true;
    if (!config.extend_exclude.empty() && in(RulesOf(config.extend_exclude), config.folder)) return true;
    if (options_.has_exclude) return in(exclude_, cwd_);
    if (config.exclude) return in(RulesOf(*config.exclude), config.folder);
    bool may_be_package = is_folder && (name == "build" || name == "dist" || name == "venv");
    if (may_be_package) return !Exists(Join(absolute, "__init__.py"));
    return in(defaults_, cwd_);
  }

  static IgnoreRules RulesOf(const std::vector<std::string>& patterns) {
    IgnoreRules rules;
    for (const auto& pattern : patterns) rules.Add(pattern);
    return rules;
  }

  // Depth is bounded by PATH_MAX: every level adds to the path that opendir() takes.
  void Folder(const std::string& shown, const std::string& absolute, GitRulesPtr rules) {
    DIR* folder = ::opendir(absolute.c_str());
    if (!folder) {
      out_.problems.push_back(Error(fmt::format("cannot read the folder: {}", std::strerror(errno)),
                                    "check its permissions", shown)
                                  .what());
      return;
    }
    std::vector<std::pair<std::string, bool>> entries;  // name, is a folder
    while (const dirent* entry = ::readdir(folder)) {
      std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      bool is_folder = entry->d_type == DT_DIR;
      if (entry->d_type == DT_UNKNOWN) {
        struct stat info {};
        is_folder = ::lstat(Join(absolute, name).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
      }
      if (is_folder || IsPythonName(name)) entries.emplace_back(name, is_folder);
    }
    ::closedir(folder);
    std::sort(entries.begin(), entries.end());
    const Config& config = configs_.For(absolute);
    bool gitignore = options_.respect_gitignore && config.respect_gitignore;
    if (gitignore) rules = EnterFolder(rules, absolute);
    for (const auto& [name, is_folder] : entries)
      Entry(Join(shown, name), Join(absolute, name), is_folder, config, gitignore ? rules : nullptr);
  }

  void Entry(const std::string& shown, const std::string& absolute, bool is_folder, const Config& config,
             const GitRulesPtr& rules) {
    if (Excluded(config, absolute, is_folder)) return;
    if (rules && rules->Ignores(absolute, is_folder)) return;
    if (is_folder) return Folder(shown, absolute, rules);
    struct stat info {};
    if (::stat(absolute.c_str(), &info) != 0) {
      if (errno != ENOENT && errno != ELOOP)
        out_.problems.push_back(
            Error(fmt::format("cannot open: {}", std::strerror(errno)), "", shown).what());
      return;  // a link to nowhere, or to a folder of that name
    }
    if (S_ISREG(info.st_mode)) Add(shown, absolute);
  }

  const DiscoverOptions& options_;
  ConfigFinder& configs_;
  Discovered& out_;
  IgnoreRules defaults_, exclude_, extend_exclude_;
  std::string cwd_;
  std::set<std::string> seen_;
};

}  // namespace

Discovered Discover(const std::vector<std::string>& paths, const DiscoverOptions& options,
                    ConfigFinder& configs) {
  Discovered out;
  Walk walk(options, configs, out);
  for (const auto& path : paths) walk.Named(path);
  std::sort(out.targets.begin(), out.targets.end(),
            [](const Target& a, const Target& b) { return a.path < b.path; });
  return out;
}

bool IsWanted(const std::string& absolute, const DiscoverOptions& options, ConfigFinder& configs) {
  Discovered ignored;
  return Walk(options, configs, ignored).Wanted(absolute, false);
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  auto absolute = std::filesystem::absolute(path, error);
  std::string text = (error ? std::filesystem::path(path) : absolute).lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

}  // namespace lowtide::lint
