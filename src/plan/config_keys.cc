#include "plan/config_keys.h"

#include <fmt/core.h>

#include <cmath>

#include "base/error.h"

namespace lowtide::plan {
namespace {

constexpr double kMost = 9007199254740992.0;  // 2^53

std::string List(Keys::Names names) {
  std::string list;
  for (const char* name : names) list += fmt::format("{}\"{}\"", list.empty() ? "" : " or ", name);
  return list;
}

}  // namespace

const nlohmann::json* Keys::Find(Names names, const char** found) const {
  for (const char* name : names) {
    auto at = object_.find(name);
    if (at == object_.end() || at->is_null()) continue;
    if (found) *found = name;
    return &*at;
  }
  return nullptr;
}

std::optional<uint64_t> Keys::Count(Names names) const {
  const char* name = nullptr;
  const nlohmann::json* value = Find(names, &name);
  if (!value) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= 0) || number > kMost || number != std::floor(number)) {
    throw Error(fmt::format("\"{}\" is {}, not a count", name, value->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 40)),
                "write a whole number that is not negative", file_);
  }
  return static_cast<uint64_t>(number);
}

uint64_t Keys::Need(Names names) const {
  if (auto value = Count(names)) return *value;
  throw Error(fmt::format("has no {}", List(names)),
              "is this a model's config.json? Otherwise describe the model: --params 7B [--layers N --hidden N --heads N]", file_);
}

bool Keys::Flag(Names names, bool otherwise) const {
  const nlohmann::json* value = Find(names);
  if (!value) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  return value->is_number() ? value->get<double>() != 0 : otherwise;
}

double Keys::Number(Names names, double otherwise) const {
  const nlohmann::json* value = Find(names);
  return value && value->is_number() ? value->get<double>() : otherwise;
}

std::string Keys::Word(Names names) const {
  const nlohmann::json* value = Find(names);
  return value && value->is_string() ? value->get<std::string>() : std::string();
}

std::string Keys::FirstWord(const char* name) const {
  const nlohmann::json* value = Find({name});
  return value && value->is_array() && !value->empty() && value->front().is_string() ? value->front().get<std::string>() : std::string();
}

size_t Keys::Size(const char* name) const {
  const nlohmann::json* value = Find({name});
  return value && value->is_structured() ? value->size() : 0;
}

}  // namespace lowtide::plan
