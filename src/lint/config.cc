// The only file that includes toml++ (it compiles slowly).
#include "lint/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "base/error.h"
#include "base/mapped_file.h"

namespace lowtide::lint {
namespace {

constexpr const char* kKeys =
    "select, extend-select, ignore, per-file-ignores, exclude, extend-exclude, preview, fail-on, baseline, "
    "respect-gitignore";

class Reader {
 public:
  Reader(const std::string& file, Config& config) : file_(file), config_(config) {}

  void Read(const toml::table& table) {
    for (auto&& [key, node] : table) ReadKey(std::string(key.str()), key, node);
  }

 private:
  [[noreturn]] void Fail(const toml::source_region& where, const std::string& what,
                         const std::string& remedy) const {
    throw Error(fmt::format("line {}: {}", where.begin.line, what), remedy, file_);
  }

  void ReadKey(const std::string& name, const toml::key& key, const toml::node& node) {
    if (name == "select") {
      config_.select = Strings(name, node);
    } else if (name == "extend-select") {
      config_.extend_select = Strings(name, node);
    } else if (name == "ignore") {
      config_.ignore = Strings(name, node);
    } else if (name == "exclude") {
      config_.exclude = Strings(name, node);
    } else if (name == "extend-exclude") {
      config_.extend_exclude = Strings(name, node);
    } else if (name == "per-file-ignores") {
      ReadPerFileIgnores(node);
    } else if (name == "preview") {
      config_.preview = Bool(name, node);
    } else if (name == "respect-gitignore") {
      config_.respect_gitignore = Bool(name, node);
    } else if (name == "fail-on") {
      config_.fail_on = OneOf(name, node, {"note", "warning", "error"});
    } else if (name == "baseline") {
      config_.baseline = String(name, node);
    } else {
      Fail(key.source(), fmt::format("[tool.lowtide.lint] has no key `{}`", name),
           fmt::format("its keys are {}", kKeys));
    }
  }

  std::vector<std::string> Strings(const std::string& name, const toml::node& node) const {
    const toml::array* array = node.as_array();
    std::vector<std::string> out;
    if (array) {
      for (const toml::node& item : *array) {
        if (const auto* text = item.as_string()) out.push_back(text->get());
      }
    }
    if (!array || out.size() != array->size()) {
      Fail(node.source(), fmt::format("`{}` must be a list of strings", name),
           fmt::format("write {} = [\"...\"]", name));
    }
    return out;
  }

  bool Bool(const std::string& name, const toml::node& node) const {
    if (const auto* value = node.as_boolean()) return value->get();
    Fail(node.source(), fmt::format("`{}` must be true or false", name), "");
  }

  std::string String(const std::string& name, const toml::node& node) const {
    if (const auto* value = node.as_string()) return value->get();
    Fail(node.source(), fmt::format("`{}` must be a string", name), "");
  }

  std::string OneOf(const std::string& name, const toml::node& node, std::vector<std::string> allowed) const {
    std::string value = String(name, node);
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return value;
    Fail(node.source(), fmt::format("`{}` cannot be \"{}\"", name, value),
         fmt::format("use one of {}", fmt::join(allowed, ", ")));
  }

  void ReadPerFileIgnores(const toml::node& node) {
    const toml::table* table = node.as_table();
    if (!table)
      Fail(node.source(), "`per-file-ignores` must be a table", "write \"tests/*\" = [\"LT104\"] below it");
    for (auto&& [pattern, codes] : *table) {
      config_.per_file_ignores.emplace_back(std::string(pattern.str()),
                                            Strings(std::string(pattern.str()), codes));
    }
  }

  const std::string& file_;
  Config& config_;
};

}  // namespace

std::optional<Config> ReadConfig(const std::string& file) {
  std::string text = ReadFile(file);
  toml::table document;
  try {
    document = toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw Error(fmt::format("line {}: {}", error.source().begin.line, error.description()),
                "correct the TOML", file);
  }
  const toml::table* table = document["tool"]["lowtide"]["lint"].as_table();
  if (!table) return std::nullopt;
  Config config;
  config.file = file;
  size_t slash = file.rfind('/');
  config.folder = slash == std::string::npos ? "." : slash == 0 ? "/" : file.substr(0, slash);
  Reader(file, config).Read(*table);
  return config;
}

const Config& ConfigFinder::For(const std::string& folder) {
  if (isolated_) return defaults_;
  if (auto known = by_folder_.find(folder); known != by_folder_.end())
    return known->second ? *known->second : defaults_;
  std::shared_ptr<const Config> found;
  std::string file = (folder == "/" ? "" : folder) + "/pyproject.toml";
  struct stat info {};
  bool broken = false;
  if (::stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
    try {
      if (auto config = ReadConfig(file)) found = std::make_shared<const Config>(std::move(*config));
    } catch (const Error& error) {
      problems_.push_back(error.what());
      broken = true;
    }
  }
  size_t slash = folder.rfind('/');
  if (!found && !broken && slash != std::string::npos && folder != "/") {
    For(slash == 0 ? "/" : folder.substr(0, slash));
    found = by_folder_[slash == 0 ? "/" : folder.substr(0, slash)];
  }
  by_folder_[folder] = found;
  return found ? *found : defaults_;
}

}  // namespace lowtide::lint
