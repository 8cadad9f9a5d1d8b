#include "lint/index.h"

#include <algorithm>

namespace lowtide::lint {

Index::Index() : data_(std::make_unique<Data>()) {}
Index::~Index() = default;
Index::Index(Index&&) noexcept = default;
Index& Index::operator=(Index&&) noexcept = default;

namespace {

// The folder below what all paths share, for files of a package: "src/pkg/a/b.py" and "src/pkg/c.py" belong together
// when src/pkg/__init__.py exists.
void FindPackages(const std::vector<const ModuleFacts*>& modules, Index::Data& index) {
  if (modules.empty()) return;
  std::string_view shared = modules[0]->path();
  for (const ModuleFacts* facts : modules) {
    std::string_view path = facts->path();
    size_t same = 0;
    while (same < shared.size() && same < path.size() && shared[same] == path[same]) ++same;
    shared = shared.substr(0, same);
  }
  size_t root = shared.rfind('/') == std::string_view::npos ? 0 : shared.rfind('/') + 1;
  auto top = [&](std::string_view path) {
    size_t slash = path.find('/', root);
    return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  };
  std::unordered_map<std::string_view, bool> is_package;
  for (const ModuleFacts* facts : modules) {
    std::string_view path = facts->path(), folder = top(path);
    if (!folder.empty() && path.substr(folder.size()) == "/__init__.py") is_package[folder] = true;
  }
  for (const ModuleFacts* facts : modules) {
    std::string_view folder = top(facts->path());
    if (!is_package.count(folder)) continue;
    index.packages[&facts->data()] = HashName(folder);
    index.package_names[&facts->data()] = HashName(folder.substr(folder.rfind('/') + 1));
  }
}

}  // namespace

Index::Index(const std::vector<const ModuleFacts*>& modules) : Index() {
  FindPackages(modules, *data_);
  for (const ModuleFacts* facts : modules) {
    const ModuleFacts::Data& module = facts->data();
    for (const FunctionFacts& function : module.functions) {
      if (function.name) data_->functions[function.name].push_back({&module, &function});
    }
    for (const LoaderFacts& loader : module.loaders) data_->loaders[loader.dataset].push_back(&loader);
    for (const ClassFacts& cls : module.classes) data_->classes[cls.name].push_back(&cls);
    for (uint64_t name : module.imports) data_->importers[name].push_back(&module);
  }
  // Only calls of functions that the project itself defines are ever asked for, and a few names.
  constexpr uint64_t kAsked[] = {HashName("set_epoch"), HashName("zero_grad"), HashName("set_device"), HashName("eval"), HashName(kModuleDifferentiates)};
  for (const ModuleFacts* facts : modules) {
    const ModuleFacts::Data& module = facts->data();
    for (const CallFacts& call : module.calls) {
      bool asked = std::find(std::begin(kAsked), std::end(kAsked), call.callee) != std::end(kAsked);
      if (asked || data_->functions.count(call.callee) || data_->classes.count(call.callee)) data_->calls[call.callee].push_back({&module, &call});
    }
  }
}

namespace {

enum class Answer { kNo, kYes, kUnknown };

bool Imports(const ModuleFacts::Data& module, uint64_t name) {
  return std::binary_search(module.imports.begin(), module.imports.end(), name);
}

// The functions a name of `module` may mean: of this file first, then of files it imports, then any.
std::vector<FunctionRef> Candidates(const Index::Data& index, const ModuleFacts::Data& module, uint64_t name, uint64_t cls) {
  auto found = index.functions.find(name);
  if (found == index.functions.end()) return {};
  std::vector<FunctionRef> here, imported, all;
  for (const FunctionRef& ref : found->second) {
    if (ref.function->flags & kIsNested) continue;
    if (cls && ref.function->cls != cls) continue;
    if (ref.module == &module) here.push_back(ref);
    if (Imports(module, ref.module->stem)) imported.push_back(ref);
    all.push_back(ref);
  }
  if (!here.empty()) return here;
  if (!imported.empty()) return imported;
  return all;
}

// The class's own call operator, when `name` is a class.
std::vector<FunctionRef> CallOperator(const Index::Data& index, const ModuleFacts::Data& module, uint64_t cls) {
  if (!index.classes.count(cls)) return {};
  auto found = Candidates(index, module, HashName("__call__"), cls);
  return found.empty() ? Candidates(index, module, HashName("forward"), cls) : found;
}

Answer ReturnsAttached(const Index::Data& index, const ModuleFacts::Data& module, uint64_t name, uint64_t cls, uint8_t element, bool given,
                       int depth) {
  std::vector<FunctionRef> candidates = Candidates(index, module, name, cls);
  if (candidates.empty()) candidates = CallOperator(index, module, name);
  if (candidates.empty() || depth > 4) return Answer::kUnknown;
  int yes = 0, no = 0, unknown = 0;
  for (const FunctionRef& ref : candidates) {
    const FunctionFacts& function = *ref.function;
    if (function.flags & kUnderNoGrad) {
      ++no;
      continue;
    }
    if (function.returns.empty()) {
      ++(candidates.size() > 1 ? unknown : no);
      continue;
    }
    Answer answer = Answer::kNo;
    for (size_t i = 0; i < function.returns.size(); ++i) {
      if (element != 255 && function.returns_tuple && i != element) continue;
      const ReturnFacts& value = function.returns[i];
      Answer one = Answer::kNo;
      if (value.flags & kGrad) one = Answer::kYes;
      else if (value.params && given && !(value.flags & (kTensor | kNumber))) one = Answer::kYes;
      else if (value.params && given) one = Answer::kUnknown;
      else if (value.flags & (kTensor | kNumber)) one = Answer::kNo;
      else if (value.dep) one = ReturnsAttached(index, *ref.module, value.dep, value.dep_class, value.element, true, depth + 1);
      else one = Answer::kUnknown;
      if (value.flags & kGrad && value.dep &&
          ReturnsAttached(index, *ref.module, value.dep, value.dep_class, value.element, true, depth + 1) == Answer::kNo) {
        one = Answer::kNo;
      }
      if (one == Answer::kYes) answer = Answer::kYes;
      else if (one == Answer::kUnknown && answer == Answer::kNo) answer = Answer::kUnknown;
    }
    ++(answer == Answer::kYes ? yes : answer == Answer::kNo ? no : unknown);
  }
  if (yes && !no) return Answer::kYes;
  if (no && !yes && !unknown) return Answer::kNo;
  if (no && yes == 0) return Answer::kNo;
  return Answer::kUnknown;
}

// Calls that may mean the function `name` of `module`: from this file, or from files that import it.
std::vector<CallRef> Callers(const Index::Data& index, const ModuleFacts::Data& module, uint64_t name) {
  auto found = index.calls.find(name);
  if (found == index.calls.end()) return {};
  std::vector<CallRef> near, methods;
  for (const CallRef& ref : found->second) {
    if (ref.module == &module || Imports(*ref.module, module.stem) || Imports(*ref.module, name)) near.push_back(ref);
    else if (ref.call->flags & kCallMethod) methods.push_back(ref);
  }
  return near.empty() ? methods : near;
}

// Every way to call `name` passes through `flag`, or through a function of which that is true. Further up, where names
// are common ones and few of the calls are meant, one that does is enough when `function_flag` is asked for.
bool AllCallers(const Index::Data& index, const ModuleFacts::Data& module, uint64_t name, uint8_t flag, uint32_t function_flag, int depth, bool one = false) {
  if (depth > 4) return false;
  bool any = false, one_is_enough = one || (function_flag != 0 && depth > 0);
  for (const CallRef& ref : Callers(index, module, name)) {
    const FunctionFacts& caller = ref.module->functions[ref.call->caller];
    if (caller.name == name && caller.name) continue;  // overriding methods that call super; recursion
    if (one_is_enough && ref.module != &module && !Imports(*ref.module, module.stem)) continue;
    any = true;
    bool passes = (ref.call->flags & flag) || (function_flag && caller.flags & function_flag) ||
                  (caller.name && AllCallers(index, *ref.module, caller.name, flag, function_flag, depth + 1));
    if (passes == one_is_enough) return passes;
  }
  return any && !one_is_enough;
}

bool DecoratorSwitchesOff(const Index::Data& index, const ModuleFacts::Data& module, uint64_t name) {
  for (const FunctionRef& ref : Candidates(index, module, name, 0)) {
    if (ref.function->flags & kProvidesNoGrad) return true;
  }
  return false;
}

// A caller of `name`, or something within two calls below it, clears gradients.
bool Cleared(const Index::Data& index, const ModuleFacts::Data& module, uint64_t name, int depth) {
  if (depth > 3) return false;
  for (const CallRef& ref : Callers(index, module, name)) {
    const FunctionFacts& caller = ref.module->functions[ref.call->caller];
    if (caller.flags & kCallsZeroGrad) return true;
    if (caller.name && caller.name != name && Cleared(index, *ref.module, caller.name, depth + 1)) return true;
  }
  return false;
}

bool Keeps(const Query& query, const ModuleFacts::Data& module, const Index::Data& index) {
  std::vector<FunctionRef> candidates = Candidates(index, module, query.name, query.cls);
  if (candidates.empty()) return false;
  auto keeps = [&](const FunctionRef& ref) {
    uint16_t bit = static_cast<uint16_t>(1u << std::min<int>(query.number, 15));
    return (ref.function->keeps & bit) != 0 && !(ref.function->flags & kUnderNoGrad);
  };
  if (!query.cls) return std::any_of(candidates.begin(), candidates.end(), keeps);
  return std::all_of(candidates.begin(), candidates.end(), keeps);
}

// Loaders of this class that have, or may have, workers; or no loader at all that is known to be of this class.
bool HasWorkers(const Query& query, const Index::Data& index) {
  auto found = index.loaders.find(query.name);
  if (found == index.loaders.end()) {
    // Made where no loader is built: whoever makes it indexes it himself.
    auto made = index.calls.find(query.name);
    if (made == index.calls.end()) return true;
    return std::any_of(made->second.begin(), made->second.end(), [](const CallRef& ref) { return !ref.module->loaders.empty(); });
  }
  if (query.confirm) return true;
  return std::any_of(found->second.begin(), found->second.end(), [](const LoaderFacts* loader) { return loader->workers != Workers::kNone; });
}

// `upper` stands above `lower` and imports from the folder that leads there: `from utils.train_utils import train`.
bool ImportsBelow(const ModuleFacts::Data& upper, const ModuleFacts::Data& lower) {
  size_t slash = upper.path.rfind('/');
  std::string_view folder = std::string_view(upper.path).substr(0, slash == std::string::npos ? 0 : slash + 1), below = lower.path;
  if (!below.starts_with(folder)) return false;
  below = below.substr(folder.size());
  size_t end = below.find('/');
  return end != std::string_view::npos && Imports(upper, HashName(below.substr(0, end)));
}

bool CalledNearby(const Query& query, const ModuleFacts::Data& module, const Index::Data& index) {
  auto found = index.calls.find(query.name);
  if (found == index.calls.end()) return false;
  if (query.confirm) return true;  // anywhere in the project counts
  for (const CallRef& ref : found->second) {
    if (ref.module == &module || Imports(*ref.module, module.stem) || Imports(module, ref.module->stem)) return true;
    auto mine = index.packages.find(&module), theirs = index.packages.find(ref.module);
    if (mine != index.packages.end() && theirs != index.packages.end() && mine->second == theirs->second) return true;
    auto library = index.package_names.find(ref.module);
    if (library != index.package_names.end() && Imports(module, library->second)) return true;  // the library does it
    auto own = index.package_names.find(&module);
    if (own != index.package_names.end() && Imports(*ref.module, own->second)) return true;  // who uses this library does it
    if (ImportsBelow(module, *ref.module) || ImportsBelow(*ref.module, module)) return true;
    // Both imported by the same program.
    for (uint64_t name : {module.stem, ref.module->stem}) {
      uint64_t other = name == module.stem ? ref.module->stem : module.stem;
      auto importers = index.importers.find(name);
      if (importers == index.importers.end() || importers->second.size() > 50) continue;
      for (const ModuleFacts::Data* importer : importers->second) {
        if (Imports(*importer, other)) return true;
      }
    }
  }
  return false;
}

}  // namespace

bool Holds(const Query& query, const ModuleFacts::Data& module, const Index::Data& index) {
  switch (query.ask) {
    case Ask::kAttached: {
      Answer answer = ReturnsAttached(index, module, query.name, query.cls, query.number, query.given != 0, 0);
      return query.confirm ? answer == Answer::kYes : answer != Answer::kNo;
    }
    case Ask::kCallerHasGrad: return !AllCallers(index, module, query.name, kCallNoGrad, kUnderNoGrad, 0, query.confirm);
    case Ask::kDecoratorKeepsGrad: return !DecoratorSwitchesOff(index, module, query.name);
    case Ask::kNoProjectCall: return !CalledNearby(query, module, index);
    case Ask::kKeeps: return Keeps(query, module, index);
    case Ask::kCallerUnguarded: return !AllCallers(index, module, query.name, kCallRankGuarded, 0, 0);
    case Ask::kNotCleared: return !Cleared(index, module, query.name, 0);
    case Ask::kHasWorkers: return HasWorkers(query, index);
    case Ask::kNotDataset: return true;
  }
  return true;
}

}  // namespace lowtide::lint
