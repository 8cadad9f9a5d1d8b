#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lowtide::plan {

// Reads a configuration by key, under any of its names; the first that is there and not null counts.
class Keys {
 public:
  Keys(const nlohmann::json& object, std::string file) : object_(object), file_(std::move(file)) {}

  using Names = std::initializer_list<const char*>;
  // Throws Error when what stands there is no whole number from 0 to 2^53.
  std::optional<uint64_t> Count(Names names) const;
  uint64_t Count(Names names, uint64_t otherwise) const { return Count(names).value_or(otherwise); }
  // Throws Error, naming all the keys, when none is there.
  uint64_t Need(Names names) const;
  bool Flag(Names names, bool otherwise) const;  // also numbers; anything else is `otherwise`
  double Number(Names names, double otherwise) const;
  std::string Word(Names names) const;           // "" when there is none
  std::string FirstWord(const char* name) const; // of an array of words; "" when there is none
  size_t Size(const char* name) const;           // of an object or array; 0 without
  bool Has(const char* name) const { return Find({name}) != nullptr; }
  const std::string& file() const { return file_; }

 private:
  const nlohmann::json* Find(Names names, const char** found = nullptr) const;

  const nlohmann::json& object_;
  std::string file_;
};

}  // namespace lowtide::plan
