#pragma once

#include <unordered_map>
#include <vector>

#include "lint/facts.h"

namespace lowtide::lint {

struct FunctionRef {
  const ModuleFacts::Data* module;
  const FunctionFacts* function;
};

struct CallRef {
  const ModuleFacts::Data* module;
  const CallFacts* call;
};

struct Index::Data {
  std::unordered_map<uint64_t, std::vector<FunctionRef>> functions;  // by name
  std::unordered_map<uint64_t, std::vector<CallRef>> calls;          // by callee
  std::unordered_map<uint64_t, std::vector<const ClassFacts*>> classes;
  // The top folder, where it is a Python package: its path, and the name it is imported by.
  std::unordered_map<const ModuleFacts::Data*, uint64_t> packages, package_names;
  std::unordered_map<uint64_t, std::vector<const LoaderFacts*>> loaders;  // by dataset class
  std::unordered_map<uint64_t, std::vector<const ModuleFacts::Data*>> importers;  // by imported name or stem
};

// Whether `query` of a suspicion in `module` holds.
bool Holds(const Query& query, const ModuleFacts::Data& module, const Index::Data& index);

}  // namespace lowtide::lint
