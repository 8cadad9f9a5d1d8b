#include "plan/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/mapped_file.h"
#include "plan/config_families.h"

namespace lowtide::plan {
namespace {

using nlohmann::json;

constexpr uintmax_t kMostBytes = 16u << 20;
constexpr int kMostDepth = 200;

json Parse(const std::string& text, const std::string& name) {
  json::parser_callback_t shallow = [&](int depth, json::parse_event_t, json&) {
    if (depth > kMostDepth) throw Error("nests too deeply for a configuration", "give a model's config.json", name);
    return true;
  };
  try {
    return json::parse(text, shallow);
  } catch (const json::parse_error& error) {
    throw Error("is not JSON", "give a model's config.json, as its makers publish it", name, error.byte ? error.byte - 1 : 0);
  } catch (const json::exception&) {
    throw Error("is not JSON that can be read", "give a model's config.json, as its makers publish it", name);
  }
}

// Models of images and text keep the language model's sizes one level down.
const json& LanguageModel(const json& all) {
  for (const char* name : {"text_config", "llm_config", "language_config"}) {
    auto nested = all.find(name);
    if (nested != all.end() && nested->is_object() && (nested->contains("hidden_size") || nested->contains("num_hidden_layers"))) return *nested;
  }
  return all;
}

Shape FromModel(const json& all, const std::string& name);

// What lowtide.plan(module) counted, around the module's own configuration if it has one.
Shape FromLiveModel(const json& model, const std::string& file) {
  Keys keys(model, file);
  const uint64_t parameters = keys.Need({"parameters"}), trainable = keys.Count({"trainable"}, parameters);
  if (!parameters) throw Error("the model has no parameters", "plan for the model before it is emptied or moved to \"meta\"", file);
  if (trainable > parameters) throw Error("more parameters are trainable than there are", "write \"trainable\" again", file);
  Shape shape;
  auto config = model.find("config");
  bool known = config != model.end() && config->is_object() && !config->empty();
  if (known) {
    try {
      shape = FromModel(*config, file);
    } catch (const Error& error) {
      known = false;
      shape.assumed.push_back({fmt::format("the module's configuration is of no use here: {}", error.message()),
                               fmt::format("模块的配置无法使用：{}", error.message())});
    }
  }
  if (!known) {
    shape = GuessShape(std::max<double>(1e4, static_cast<double>(parameters)), shape);
    shape.sizes_known = false;
  }
  shape.name = keys.Word({"name"});
  shape.exact_parameters = parameters;
  shape.trainable = trainable;
  shape.parameter_bytes = std::max(0.0, keys.Number({"parameter_bytes"}, 0));
  return shape;
}

Shape FromModel(const json& all, const std::string& name) {
  const json& model = LanguageModel(all);
  Shape shape = ShapeOfFamily(Keys(model, name), Keys(all, name));
  if (&model != &all) {
    shape.assumed.push_back({"only the language model of this configuration is counted, not its image or sound encoder",
                             "只计算此配置中的语言模型，不含图像或声音编码器"});
  }
  CheckShape(shape);
  return shape;
}

std::string NameOf(const json& all, const std::string& path) {
  std::string name = Keys(all, path).Word({"_name_or_path", "name_or_path"});
  if (name.empty() || name.size() > 100) {
    std::filesystem::path file(path);
    name = file.filename() == "config.json" && file.has_parent_path() ? std::filesystem::absolute(file).parent_path().filename().string() : file.filename().string();
  }
  return name;
}

}  // namespace

Shape ParseConfig(const std::string& text, const std::string& name) {
  const json all = Parse(text, name);
  if (!all.is_object()) throw Error("is JSON, but no object with sizes in it", "give a model's config.json", name);
  try {
    auto live = all.find("lowtide_model");
    if (live != all.end() && live->is_object()) {
      Shape shape = FromLiveModel(*live, name);
      CheckShape(shape);
      return shape;
    }
    Shape shape = FromModel(all, name);
    shape.name = NameOf(all, name);
    return shape;
  } catch (const Error& error) {
    throw error.In(name);
  }
}

Shape ReadConfig(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path file = fs::is_directory(path, error) ? fs::path(path) / "config.json" : fs::path(path);
  if (!fs::is_regular_file(file, error)) {
    std::string names;
    for (const std::string& preset : PresetNames()) names += (names.empty() ? "" : ", ") + preset;
    throw Error("no such configuration, and no model that is known by this name",
                fmt::format("give a config.json, a folder that has one, --params 7B, or one of: {}", names), path);
  }
  if (fs::file_size(file, error) > kMostBytes || error) {
    throw Error("is too large for a configuration", "give a model's config.json, a few kilobytes", file.string());
  }
  return ParseConfig(ReadFile(file.string()), file.string());
}

}  // namespace lowtide::plan
