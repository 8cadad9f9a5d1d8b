#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lint/lint.h"
#include "lint/syntax.h"

namespace lowtide::lint {

struct ClassInfo {
  NodeId node = 0;
  Atom name = kNoAtom;
  std::vector<Atom> bases;  // last names: "Dataset" of torch.utils.data.Dataset
  std::unordered_map<Atom, int> methods;
};

struct FunctionInfo {
  NodeId node = 0;  // 0: the module's own code, always function 0
  NodeId body = 0;
  Atom name = kNoAtom;
  int owner = -1;   // class, when it is a method
  int parent = 0;   // the function around it
  std::vector<Atom> parameters;  // with self
  std::vector<NodeId> decorators;
};

// One parsed file with what is looked up all the time: functions, classes, imports, calls by name.
class Module {
 public:
  explicit Module(const Source& source, const std::vector<Range>& ranges = {});  // see Parse

  bool empty() const { return tree_.nodes.empty(); }
  const std::string& path() const { return path_; }
  std::string_view text() const { return tree_.text; }
  size_t size() const { return tree_.nodes.size(); }
  const Node& operator[](NodeId id) const { return tree_.nodes[id]; }
  const AtomTable& atoms() const { return tree_.atoms; }
  std::string_view Name(Atom atom) const { return tree_.atoms.Text(atom); }
  std::string_view Text(NodeId id) const { return tree_.text.substr((*this)[id].start, (*this)[id].end - (*this)[id].start); }
  Kind KindOf(NodeId id) const { return tree_.nodes[id].kind; }

  // Children. 0 means none.
  NodeId First(NodeId id) const { return id + 1 < (*this)[id].last ? id + 1 : 0; }
  NodeId Next(NodeId id) const {
    NodeId next = (*this)[id].last;
    return id != 0 && next < (*this)[(*this)[id].parent].last ? next : 0;
  }
  NodeId Child(NodeId id, Field field) const;
  std::vector<NodeId> Children(NodeId id) const;

  // Calls.
  NodeId Callee(NodeId call) const { return Child(call, Field::k_function); }
  Atom CalleeName(NodeId call) const { return LastName(Callee(call)); }
  NodeId Receiver(NodeId call) const;  // `a.b` of `a.b.c()`, or 0
  NodeId Argument(NodeId call, int index) const;  // positional
  NodeId Keyword(NodeId call, Atom name) const;   // the value of `name=...`
  NodeId Argument(NodeId call, int index, Atom keyword) const;
  const std::vector<NodeId>& Calls(KnownAtom name) const { return calls_[name]; }
  std::vector<NodeId> Calls(std::initializer_list<KnownAtom> names) const;  // in order of position
  bool Has(Atom known) const { return present_[known]; }  // the identifier occurs anywhere

  // Names. LastName: `c` of `a.b.c` and of `c`. Path: a number for `self.a['k'].b`, the same for the same text; 0 when
  // it is no plain access path.
  Atom LastName(NodeId id) const;
  Atom RootName(NodeId id) const;  // `a` of `a.b.c`, `a[i].b`, `a.b()`
  Atom Path(NodeId id) const;
  std::string Qualified(NodeId id) const;  // imports resolved: "torch.nn.functional.relu"; "" when no dotted name
  bool IsTorch(NodeId id) const;           // a name that comes from torch, or torch itself
  const std::unordered_map<Atom, std::string>& imports() const { return imports_; }

  // Scopes.
  const std::vector<FunctionInfo>& functions() const { return functions_; }
  const std::vector<ClassInfo>& classes() const { return classes_; }
  int FunctionOf(NodeId id) const;  // the innermost; 0 for the module's own code
  int ClassOf(NodeId id) const;     // of the innermost method, looking through nested functions; -1
  int FindFunction(Atom name) const;  // a function at module level, or -1
  int FindClass(Atom name) const;
  int FindMethod(int cls, Atom name) const;  // also in base classes of this file
  bool DerivesFrom(int cls, std::initializer_list<KnownAtom> bases) const;  // by last names, through this file
  bool IsNnModule(int cls) const;
  bool IsLightning(int cls) const;

  // Loops and statements.
  NodeId Ancestor(NodeId id, std::initializer_list<Kind> kinds, NodeId stop = 0) const;  // not crossing functions
  NodeId EnclosingLoop(NodeId id) const;  // `for`/`while` whose body holds it, in the same function; 0
  NodeId Statement(NodeId id) const;      // child of the block that holds it
  bool Inside(NodeId id, NodeId outer) const { return id >= outer && id < (*this)[outer].last; }
  bool Contains(NodeId outer, std::initializer_list<Atom> identifiers) const;
  NodeId FindCall(NodeId outer, std::initializer_list<Atom> names) const;
  bool HasPath(NodeId outer, Atom path) const;

  // Positions.
  uint32_t Line(uint32_t byte) const;  // from 1
  uint32_t Column(uint32_t byte) const;

  const std::vector<NodeId>& Nodes(Kind kind) const { return by_kind_[static_cast<int>(kind)]; }

 private:
  void Collect();
  void AddFunction(NodeId id, int parent, int owner);
  void AddClass(NodeId id);
  void AddImport(NodeId id);
  Atom PathUncached(NodeId id) const;

  std::string path_;
  Tree tree_;
  std::vector<FunctionInfo> functions_;
  std::vector<ClassInfo> classes_;
  std::unordered_map<Atom, std::string> imports_;
  std::unordered_map<Atom, int> function_names_, class_names_;
  std::array<std::vector<NodeId>, kKnownAtoms> calls_;
  std::array<bool, kKnownAtoms> present_{};
  std::array<std::vector<NodeId>, 128> by_kind_;
  std::vector<NodeId> function_starts_;  // sorted: node of functions_[i]
  mutable std::unordered_map<uint64_t, Atom> paths_;
  mutable std::vector<uint32_t> lines_;
};

std::string_view Unquote(std::string_view literal);  // the text between a string literal's quotes
bool HasHint(std::string_view name, std::initializer_list<std::string_view> parts);  // any part, without case

}  // namespace lowtide::lint
