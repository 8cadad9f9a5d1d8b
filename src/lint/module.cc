#include "lint/module.h"

#include <algorithm>
#include <cctype>

namespace lowtide::lint {

std::string_view Unquote(std::string_view literal) {
  size_t begin = literal.find_first_of("'\"");
  if (begin == std::string_view::npos) return {};
  literal.remove_prefix(begin);
  size_t quotes = literal.size() >= 6 && literal[1] == literal[0] && literal[2] == literal[0] ? 3 : 1;
  if (literal.size() < 2 * quotes) return {};
  return literal.substr(quotes, literal.size() - 2 * quotes);
}

bool HasHint(std::string_view name, std::initializer_list<std::string_view> parts) {
  auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return std::search(name.begin(), name.end(), part.begin(), part.end(), same) != name.end();
  });
}

Module::Module(const Source& source, const std::vector<Range>& ranges) : path_(source.path), tree_(Parse(source.text, ranges)) {
  functions_.emplace_back();
  function_starts_.push_back(0);
  if (!empty()) Collect();
}

NodeId Module::Child(NodeId id, Field field) const {
  for (NodeId child = First(id); child; child = Next(child)) {
    if ((*this)[child].field == field) return child;
  }
  return 0;
}

std::vector<NodeId> Module::Children(NodeId id) const {
  std::vector<NodeId> children;
  for (NodeId child = First(id); child; child = Next(child)) children.push_back(child);
  return children;
}

void Module::Collect() {
  struct Open {
    NodeId last;
    int function, owner;
  };
  std::vector<Open> scopes{{(*this)[0].last, 0, -1}};
  functions_[0].body = 0;
  for (NodeId id = 0; id < size(); ++id) {
    while (id >= scopes.back().last) scopes.pop_back();
    const Node& node = (*this)[id];
    switch (node.kind) {
      case Kind::kIdentifier:
        if (node.atom < kKnownAtoms) present_[node.atom] = true;
        break;
      case Kind::kCall: {
        Atom name = CalleeName(id);
        if (name < kKnownAtoms) calls_[name].push_back(id);
        break;
      }
      case Kind::kFunction:
        AddFunction(id, scopes.back().function, scopes.back().owner);
        scopes.push_back({node.last, static_cast<int>(functions_.size()) - 1, -1});
        break;
      case Kind::kClass:
        AddClass(id);
        scopes.push_back({node.last, scopes.back().function, static_cast<int>(classes_.size()) - 1});
        break;
      case Kind::kImport:
      case Kind::kImportFrom:
        AddImport(id);
        break;
      default:
        break;
    }
    switch (node.kind) {
      case Kind::kAssignment:
      case Kind::kAugmentedAssignment:
      case Kind::kFor:
      case Kind::kWhile:
      case Kind::kWith:
      case Kind::kIf:
      case Kind::kInterpolation:
      case Kind::kReturn:
      case Kind::kDelete:
      case Kind::kCall:
        by_kind_[static_cast<int>(node.kind)].push_back(id);
        break;
      default:
        break;
    }
  }
  calls_[0].clear();
}

void Module::AddFunction(NodeId id, int parent, int owner) {
  FunctionInfo made;
  made.node = id;
  made.parent = parent;
  made.owner = owner;
  made.body = Child(id, Field::k_body);
  made.name = (*this)[Child(id, Field::k_name)].atom;
  if (NodeId parameters = Child(id, Field::k_parameters)) {
    for (NodeId child = First(parameters); child; child = Next(child)) {
      NodeId name = child;
      if (KindOf(child) == Kind::kDefaultParameter || KindOf(child) == Kind::kTypedDefaultParameter) {
        name = Child(child, Field::k_name);
      } else if (KindOf(child) != Kind::kIdentifier) {
        name = First(child);
        if (name && KindOf(name) != Kind::kIdentifier) name = First(name);
      }
      made.parameters.push_back(name ? (*this)[name].atom : static_cast<Atom>(kNoAtom));
    }
  }
  NodeId outer = (*this)[id].parent;
  if (outer && KindOf(outer) == Kind::kDecorated) {
    for (NodeId child = First(outer); child; child = Next(child)) {
      if (KindOf(child) == Kind::kDecorator && First(child)) made.decorators.push_back(First(child));
    }
  }
  int index = static_cast<int>(functions_.size());
  if (owner >= 0) {
    classes_[owner].methods.emplace(made.name, index);
  } else if (parent == 0) {
    function_names_[made.name] = index;
  }
  functions_.push_back(std::move(made));
  function_starts_.push_back(id);
}

void Module::AddClass(NodeId id) {
  ClassInfo made;
  made.node = id;
  made.name = (*this)[Child(id, Field::k_name)].atom;
  if (NodeId bases = Child(id, Field::k_superclasses)) {
    for (NodeId child = First(bases); child; child = Next(child)) {
      NodeId base = KindOf(child) == Kind::kSubscript ? Child(child, Field::k_value) : child;
      if (KindOf(child) != Kind::kKeywordArgument && LastName(base)) made.bases.push_back(LastName(base));
    }
  }
  class_names_[made.name] = static_cast<int>(classes_.size());
  classes_.push_back(std::move(made));
}

void Module::AddImport(NodeId id) {
  std::string prefix;
  NodeId from = 0;
  if (KindOf(id) == Kind::kImportFrom) {
    from = Child(id, Field::k_module_name);
    if (from) prefix = std::string(Text(from)) + ".";
  }
  for (NodeId child = First(id); child; child = Next(child)) {
    if (child == from || (*this)[child].field != Field::k_name) continue;
    if (KindOf(child) == Kind::kAliasedImport) {
      NodeId name = Child(child, Field::k_name), alias = Child(child, Field::k_alias);
      if (name && alias) imports_[(*this)[alias].atom] = prefix + std::string(Text(name));
    } else if (NodeId first = First(child)) {  // dotted name: `import a.b` binds a
      Atom bound = (*this)[first].atom;
      imports_[bound] = prefix.empty() ? std::string(Name(bound)) : prefix + std::string(Text(child));
    }
  }
}

NodeId Module::Receiver(NodeId call) const {
  NodeId callee = Callee(call);
  return callee && KindOf(callee) == Kind::kAttribute ? Child(callee, Field::k_object) : 0;
}

NodeId Module::Argument(NodeId call, int index) const {
  NodeId list = Child(call, Field::k_arguments);
  if (!list) return 0;
  if (KindOf(list) != Kind::kArgumentList) return index == 0 ? list : 0;  // f(x for x in y)
  for (NodeId child = First(list); child; child = Next(child)) {
    Kind kind = KindOf(child);
    if (kind == Kind::kKeywordArgument || kind == Kind::kDictSplat) continue;
    if (kind == Kind::kListSplat) return 0;
    if (index-- == 0) return child;
  }
  return 0;
}

NodeId Module::Keyword(NodeId call, Atom name) const {
  NodeId list = Child(call, Field::k_arguments);
  if (!list || KindOf(list) != Kind::kArgumentList) return 0;
  for (NodeId child = First(list); child; child = Next(child)) {
    if (KindOf(child) != Kind::kKeywordArgument) continue;
    NodeId key = Child(child, Field::k_name);
    if (key && (*this)[key].atom == name) return Child(child, Field::k_value);
  }
  return 0;
}

NodeId Module::Argument(NodeId call, int index, Atom keyword) const {
  NodeId found = Argument(call, index);
  return found ? found : Keyword(call, keyword);
}

std::vector<NodeId> Module::Calls(std::initializer_list<KnownAtom> names) const {
  std::vector<NodeId> found;
  for (KnownAtom name : names) found.insert(found.end(), calls_[name].begin(), calls_[name].end());
  std::sort(found.begin(), found.end());
  return found;
}

Atom Module::LastName(NodeId id) const {
  if (!id) return kNoAtom;
  if (KindOf(id) == Kind::kIdentifier) return (*this)[id].atom;
  if (KindOf(id) != Kind::kAttribute) return kNoAtom;
  NodeId name = Child(id, Field::k_attribute);
  return name ? (*this)[name].atom : static_cast<Atom>(kNoAtom);
}

Atom Module::RootName(NodeId id) const {
  while (id) {
    switch (KindOf(id)) {
      case Kind::kIdentifier: return (*this)[id].atom;
      case Kind::kAttribute: id = Child(id, Field::k_object); break;
      case Kind::kSubscript: id = Child(id, Field::k_value); break;
      case Kind::kCall: id = Callee(id); break;
      case Kind::kParenthesized: id = First(id); break;
      default: return kNoAtom;
    }
  }
  return kNoAtom;
}

// Paths share the atoms' numbers for plain names; longer ones are numbered from the top down.
Atom Module::Path(NodeId id) const {
  if (!id) return kNoAtom;
  if (KindOf(id) == Kind::kIdentifier) return (*this)[id].atom;
  return PathUncached(id);
}

Atom Module::PathUncached(NodeId id) const {
  NodeId base = 0;
  uint64_t key = 0;
  if (KindOf(id) == Kind::kAttribute) {
    base = Child(id, Field::k_object);
    key = LastName(id);
  } else if (KindOf(id) == Kind::kSubscript) {
    base = Child(id, Field::k_value);
    NodeId index = Child(id, Field::k_subscript);
    if (!index || (KindOf(index) != Kind::kString && KindOf(index) != Kind::kInteger)) return kNoAtom;
    key = HashName(KindOf(index) == Kind::kString ? Unquote(Text(index)) : Text(index)) & 0x3fffffff;
    key |= 0x40000000;
  }
  if (!base || !key) return kNoAtom;
  Atom parent = Path(base);
  if (parent == kNoAtom) return kNoAtom;
  return paths_.try_emplace(uint64_t{parent} << 32 | key, static_cast<Atom>(0x80000000u + paths_.size())).first->second;
}

std::string Module::Qualified(NodeId id) const {
  std::string tail;
  while (id && KindOf(id) == Kind::kAttribute) {
    tail = "." + std::string(Name(LastName(id))) + tail;
    id = Child(id, Field::k_object);
  }
  if (!id || KindOf(id) != Kind::kIdentifier) return {};
  auto found = imports_.find((*this)[id].atom);
  return (found == imports_.end() ? std::string(Text(id)) : found->second) + tail;
}

bool Module::IsTorch(NodeId id) const {
  Atom root = kNoAtom;
  while (id && KindOf(id) == Kind::kAttribute) id = Child(id, Field::k_object);
  if (id && KindOf(id) == Kind::kIdentifier) root = (*this)[id].atom;
  if (root == kA_torch) return true;
  auto found = imports_.find(root);
  return found != imports_.end() && found->second.compare(0, 5, "torch") == 0;
}

int Module::FunctionOf(NodeId id) const {
  size_t at = std::upper_bound(function_starts_.begin(), function_starts_.end(), id) - function_starts_.begin() - 1;
  int function = static_cast<int>(at);
  while (function > 0 && !Inside(id, functions_[function].node)) function = functions_[function].parent;
  return function;
}

int Module::ClassOf(NodeId id) const {
  for (int f = FunctionOf(id); f > 0; f = functions_[f].parent) {
    if (functions_[f].owner >= 0) return functions_[f].owner;
  }
  return -1;
}

int Module::FindFunction(Atom name) const {
  auto found = function_names_.find(name);
  return found == function_names_.end() ? -1 : found->second;
}

int Module::FindClass(Atom name) const {
  auto found = class_names_.find(name);
  return found == class_names_.end() ? -1 : found->second;
}

int Module::FindMethod(int cls, Atom name) const {
  for (int hops = 0; cls >= 0 && hops < 8; ++hops) {
    auto found = classes_[cls].methods.find(name);
    if (found != classes_[cls].methods.end()) return found->second;
    int next = -1;
    for (Atom base : classes_[cls].bases) {
      if (next < 0 && FindClass(base) != cls) next = FindClass(base);
    }
    cls = next;
  }
  return -1;
}

bool Module::DerivesFrom(int cls, std::initializer_list<KnownAtom> bases) const {
  std::vector<int> queue{cls};
  for (size_t i = 0; i < queue.size() && i < 16; ++i) {
    if (queue[i] < 0) continue;
    for (Atom base : classes_[queue[i]].bases) {
      if (std::find(bases.begin(), bases.end(), base) != bases.end()) return true;
      if (int found = FindClass(base); found >= 0) queue.push_back(found);
    }
  }
  return false;
}

bool Module::IsLightning(int cls) const {
  return cls >= 0 && DerivesFrom(cls, {kA_LightningModule, kA_LightningDataModule, kA_Callback, kA_Brain});
}

bool Module::IsNnModule(int cls) const {
  if (cls < 0) return false;
  if (DerivesFrom(cls, {kA_Module, kA_LightningModule, kA_Sequential, kA_ModuleList, kA_PreTrainedModel})) return true;
  bool own = classes_[cls].bases.empty() || (classes_[cls].bases.size() == 1 && classes_[cls].bases[0] == kA_object);
  return !own && FindMethod(cls, kA_forward) >= 0 && !DerivesFrom(cls, {kA_Function});
}

NodeId Module::Ancestor(NodeId id, std::initializer_list<Kind> kinds, NodeId stop) const {
  for (NodeId up = id; up != 0 && up != stop;) {
    up = (*this)[up].parent;
    if (up == stop || up == 0) break;
    Kind kind = KindOf(up);
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return up;
    if (kind == Kind::kFunction || kind == Kind::kClass || kind == Kind::kLambda) break;
  }
  return 0;
}

NodeId Module::EnclosingLoop(NodeId id) const {
  for (NodeId loop = Ancestor(id, {Kind::kFor, Kind::kWhile}); loop; loop = Ancestor(loop, {Kind::kFor, Kind::kWhile})) {
    NodeId body = Child(loop, Field::k_body);
    if (body && Inside(id, body)) return loop;
  }
  return 0;
}

NodeId Module::Statement(NodeId id) const {
  while (id) {
    NodeId up = (*this)[id].parent;
    if (KindOf(up) == Kind::kBlock || KindOf(up) == Kind::kModule) return id;
    id = up;
  }
  return 0;
}

bool Module::Contains(NodeId outer, std::initializer_list<Atom> identifiers) const {
  for (NodeId id = outer; id < (*this)[outer].last; ++id) {
    Atom atom = (*this)[id].atom;
    if (atom && std::find(identifiers.begin(), identifiers.end(), atom) != identifiers.end()) return true;
  }
  return false;
}

NodeId Module::FindCall(NodeId outer, std::initializer_list<Atom> names) const {
  for (NodeId id = outer; id < (*this)[outer].last; ++id) {
    if (KindOf(id) != Kind::kCall) continue;
    Atom name = CalleeName(id);
    if (name && std::find(names.begin(), names.end(), name) != names.end()) return id;
  }
  return 0;
}

bool Module::HasPath(NodeId outer, Atom path) const {
  if (!path) return false;
  for (NodeId id = outer; id < (*this)[outer].last; ++id) {
    Kind kind = KindOf(id);
    if ((kind != Kind::kIdentifier && kind != Kind::kAttribute && kind != Kind::kSubscript) || Path(id) != path) continue;
    // `loss` of `self.loss` and of `f(loss=...)` is no name of its own.
    bool part = kind == Kind::kIdentifier && ((*this)[id].field == Field::k_attribute || (KindOf((*this)[id].parent) == Kind::kKeywordArgument && (*this)[id].field == Field::k_name));
    if (!part) return true;
  }
  return false;
}

uint32_t Module::Line(uint32_t byte) const {
  if (lines_.empty()) {
    lines_.push_back(0);
    for (size_t at = text().find('\n'); at != std::string_view::npos; at = text().find('\n', at + 1)) {
      lines_.push_back(static_cast<uint32_t>(at + 1));
    }
  }
  return static_cast<uint32_t>(std::upper_bound(lines_.begin(), lines_.end(), byte) - lines_.begin());
}

uint32_t Module::Column(uint32_t byte) const {
  uint32_t begin = lines_[Line(byte) - 1], column = 1;
  if (begin == 0 && text().substr(0, 3) == "\xef\xbb\xbf") begin = std::min<uint32_t>(3, byte);
  for (uint32_t at = begin; at < byte; ++at) column += (static_cast<uint8_t>(text()[at]) & 0xc0) != 0x80;
  return column;
}

}  // namespace lowtide::lint
