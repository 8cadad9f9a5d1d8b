#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "lint/flow.h"
#include "lint/lint.h"
#include "lint/module.h"

// What one file says to others, and what its suspicions ask of them. Names are 64-bit hashes.
namespace lowtide::lint {

enum FunctionFlag : uint32_t {
  kCallsZeroGrad = 1 << 0,
  kCallsOptimizerStep = 1 << 1,
  kCallsBackwardFlag = 1 << 2,
  kUnderNoGrad = 1 << 3,      // its body runs without autograd
  kProvidesNoGrad = 1 << 4,   // a decorator or context manager that switches autograd off
  kCallsSetEpoch = 1 << 5,
  kClipsGradients = 1 << 6,
  kIsNested = 1 << 7,
};

struct ReturnFacts {
  uint16_t flags = 0;   // ValueFlag
  uint16_t params = 0;
  uint64_t dep = 0;     // function name it depends on; 0 none
  uint64_t dep_class = 0;
  uint8_t element = 255;
};

struct FunctionFacts {
  uint64_t name = 0, cls = 0;
  uint32_t flags = 0;
  uint16_t keeps = 0;       // parameters that are added to something that outlives the call, graph and all
  uint16_t stores = 0;      // parameters that replace an attribute of self
  uint8_t parameters = 0;
  bool returns_tuple = false;
  std::vector<uint64_t> decorators;
  std::vector<ReturnFacts> returns;
};

// The callee that Summarize notes for a module whose methods call torch.autograd.grad: it cannot run without autograd.
inline constexpr std::string_view kModuleDifferentiates = "<module differentiates>";

enum CallFlag : uint8_t { kCallNoGrad = 1, kCallRankGuarded = 2, kCallMethod = 4, kCallInLoop = 8, kCallClears = 16 };

struct CallFacts {
  uint64_t callee = 0;
  uint32_t caller = 0;  // function index
  uint8_t flags = 0;
};

struct ClassFacts {
  uint64_t name = 0;
  std::vector<uint64_t> bases;
};

enum class Workers : uint8_t { kNone, kSome, kUnknown };

// A DataLoader that is built: from which class of dataset, with how many workers.
struct LoaderFacts {
  uint64_t dataset = 0;  // 0: cannot be told
  Workers workers = Workers::kNone;
};

enum class Ask : uint8_t {
  kAttached,        // the call of `name` (a method of `cls` unless 0) returns something attached; see `confirm`
  kCallerHasGrad,   // not every caller of function `name` runs it without autograd
  kDecoratorKeepsGrad,  // `name` is no decorator that switches autograd off
  kNoProjectCall,   // no file that has to do with this one calls `name`
  kKeeps,           // method `name` of class `cls` keeps parameter `number`
  kCallerUnguarded, // not every caller of `name` is guarded by rank
  kNotCleared,      // nobody who calls function `name`, and nothing it calls, clears gradients
  kHasWorkers,      // no file builds loaders of class `name` with workers off alone
  kNotDataset,      // class `name` does not derive from torch's modules elsewhere
};

struct Query {
  Ask ask = Ask::kAttached;
  bool confirm = false;  // kAttached: the index must say yes; otherwise it must not say no. kHasWorkers: any loader will do. kCallerHasGrad: no caller may switch it off
  uint8_t number = 255;  // element or parameter
  uint16_t given = 0;    // arguments known to be attached, as bits
  uint64_t name = 0, cls = 0;
};

// A diagnostic that stands when every query holds.
struct Pending {
  uint8_t rule = 0;
  Diagnostic diagnostic;
  std::vector<Query> queries;

  Pending& Needs(Query query) {
    queries.push_back(query);
    return *this;
  }
};

struct ModuleFacts::Data {
  std::string path;
  uint64_t stem = 0;  // of the file's name, or of its folder for __init__.py
  std::vector<FunctionFacts> functions;
  std::vector<ClassFacts> classes;
  std::vector<CallFacts> calls;
  std::vector<uint64_t> imports;  // names and module stems, sorted
  std::vector<LoaderFacts> loaders;
  std::vector<Pending> pending;
};

// Everything a rule sees of a file.
struct Scope {
  const Module& module;
  const Flow& flow;
};

ModuleFacts::Data Summarize(const Module& module, const Flow& flow);

}  // namespace lowtide::lint
