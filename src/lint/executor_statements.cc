#include "lint/executor_values.h"

// Statements: blocks, branches, loops, with, return.
namespace lowtide::lint {

void Executor::ExecBlock(NodeId block) {
  for (NodeId child = m_.First(block); child; child = m_.Next(child)) Exec(child);
}

void Executor::Exec(NodeId id) {
  switch (m_.KindOf(id)) {
    case Kind::kExpressionStatement:
      for (NodeId child = m_.First(id); child; child = m_.Next(child)) Exec(child);
      break;
    case Kind::kAssignment: {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (!right) break;
      Value value = m_.KindOf(right) == Kind::kAssignment ? (Exec(right), Eval(m_.Child(right, Field::k_left))) : Eval(right);
      if (left) Assign(left, value, right);
      break;
    }
    case Kind::kAugmentedAssignment: {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (!left || !right) break;
      Value sum = Union(Eval(left), Eval(right));
      sum.flags &= ~kInstance;
      if (sum.flags & kGraphFlags) sum = Computed(sum);
      flow_.values_[id] = sum;
      if (Atom path = m_.Path(left)) Set(path, sum);
      break;
    }
    case Kind::kIf: ExecIf(id); break;
    case Kind::kFor:
    case Kind::kWhile: ExecLoop(id); break;
    case Kind::kTry: ExecTry(id); break;
    case Kind::kWith: ExecWith(id); break;
    case Kind::kReturn: ExecReturn(id); break;
    case Kind::kBlock: ExecBlock(id); break;
    case Kind::kDelete:
      if (NodeId list = m_.First(id)) {
        NodeId one = m_.KindOf(list) == Kind::kExpressionList ? m_.First(list) : list;
        for (; one; one = one == list ? 0 : m_.Next(one)) Set(m_.Path(one), Value{kNumber, 0, 0});
      }
      break;
    case Kind::kDecorated:
      for (NodeId child = m_.First(id); child; child = m_.Next(child)) Exec(child);
      break;
    case Kind::kFunction: {
      int nested = m_.FunctionOf(id);
      if (nested != 0 && function_ != 0) RunFunction(nested);
      break;
    }
    case Kind::kClass:
      if (NodeId body = m_.Child(id, Field::k_body)) {
        size_t mark = Mark();
        ExecBlock(body);
        Undo(mark);
      }
      break;
    case Kind::kMatch:
    case Kind::kCase:
    case Kind::kError:
    case Kind::kOther:
    case Kind::kRaise:
    case Kind::kAssert:
      for (NodeId child = m_.First(id); child; child = m_.Next(child)) Exec(child);
      break;
    case Kind::kImport:
    case Kind::kImportFrom:
    case Kind::kFutureImport:
    case Kind::kGlobal:
    case Kind::kNonlocal:
    case Kind::kPass:
    case Kind::kBreak:
    case Kind::kContinue:
    case Kind::kDecorator:
    case Kind::kNone: break;
    default: Eval(id); break;
  }
}

void Executor::ExecIf(NodeId id) {
  if (NodeId test = m_.Child(id, Field::k_condition)) Eval(test);
  std::vector<std::vector<Change>> branches;
  bool has_else = false;
  size_t mark = Mark();
  if (NodeId body = m_.Child(id, Field::k_consequence)) {
    ExecBlock(body);
    branches.push_back(Take(mark));
  }
  for (NodeId child = m_.First(id); child; child = m_.Next(child)) {
    Kind kind = m_.KindOf(child);
    if (kind == Kind::kElif) {
      if (NodeId test = m_.Child(child, Field::k_condition)) Eval(test);
      if (NodeId body = m_.Child(child, Field::k_consequence)) ExecBlock(body);
      branches.push_back(Take(mark));
    } else if (kind == Kind::kElse) {
      has_else = true;
      if (NodeId body = m_.Child(child, Field::k_body)) ExecBlock(body);
      branches.push_back(Take(mark));
    }
  }
  Atom settled = kNoAtom;
  // `if isinstance(x, torch.Tensor): x = x.item()`: afterwards x holds no graph, whichever way it went.
  if (Atom tested = TypeTested(m_.Child(id, Field::k_condition)); tested && !branches.empty()) {
    for (const Change& change : branches[0]) {
      if (change.path != tested || change.before.attached() || change.before.params) continue;
      for (auto& branch : branches) std::erase_if(branch, [&](const Change& other) { return &branch != &branches[0] && other.path == tested; });
      settled = tested;
    }
  }
  if (!has_else) branches.emplace_back();
  // Joined by hand over all branches: a name that every branch sets loses its old value.
  std::unordered_map<Atom, std::pair<Value, size_t>> joined;
  std::vector<Atom> order;
  for (const auto& branch : branches) {
    for (const Change& change : branch) {
      auto [at, fresh] = joined.try_emplace(change.path, change.before, 1);
      if (fresh) {
        order.push_back(change.path);
      } else {
        at->second.first = Union(at->second.first, change.before);
        ++at->second.second;
      }
    }
  }
  for (Atom path : order) {
    auto& [value, count] = joined[path];
    bool keeps_old = count < branches.size() && Known(path) && path != settled;
    Set(path, keeps_old ? Union(value, Get(path)) : value);
  }
}

// The path that a test asks for being a tensor: isinstance(x, Tensor), torch.is_tensor(x), hasattr(x, "item").
Atom Executor::TypeTested(NodeId test) const {
  if (!test) return kNoAtom;
  for (NodeId id = test; id < m_[test].last; ++id) {
    if (m_.KindOf(id) == Kind::kAttribute && m_.LastName(id) == kA_requires_grad) return m_.Path(m_.Child(id, Field::k_object));
    if (m_.KindOf(id) != Kind::kCall) continue;
    if (In(m_.CalleeName(id), {kA_isinstance, kA_is_tensor, kA_hasattr, kA_type})) return m_.Path(m_.Argument(id, 0));
  }
  return kNoAtom;
}

void Executor::ExecLoop(NodeId id) {
  bool is_for = m_.KindOf(id) == Kind::kFor;
  Value items;
  NodeId left = 0, right = 0;
  if (is_for) {
    left = m_.Child(id, Field::k_left);
    right = m_.Child(id, Field::k_right);
    if (right) items = Eval(right);
    items.flags &= ~(kContainer | kInstance | kModel);
    if (!items.attached()) items.flags |= kData;
    items.flags &= ~kLoader;
  }
  int passes = first_pass_ ? 1 : 2;
  bool outer_first = first_pass_;
  size_t mark = Mark();
  for (int pass = 0; pass < passes; ++pass) {
    first_pass_ = outer_first || (passes == 2 && pass == 0);
    if (left) Assign(left, items, right);
    if (!is_for) {
      if (NodeId test = m_.Child(id, Field::k_condition)) Eval(test);
    }
    if (NodeId body = m_.Child(id, Field::k_body)) ExecBlock(body);
  }
  first_pass_ = outer_first;
  // The body may not have run at all, but what it stored is what matters after it.
  std::vector<Change> after = Take(mark);
  for (const Change& change : after) {
    bool keep_old = Known(change.path) && (Get(change.path).flags & kGrad) && !(change.before.flags & kBacked);
    Set(change.path, keep_old ? Union(change.before, Get(change.path)) : change.before);
  }
  if (is_for) CleanedByLoop(id);
  if (NodeId alternative = m_.Child(id, Field::k_alternative)) {
    if (NodeId body = m_.Child(alternative, Field::k_body)) ExecBlock(body);
  }
}

void Executor::ExecTry(NodeId id) {
  if (NodeId body = m_.Child(id, Field::k_body)) ExecBlock(body);
  for (NodeId child = m_.First(id); child; child = m_.Next(child)) {
    Kind kind = m_.KindOf(child);
    if (kind == Kind::kExcept || kind == Kind::kExceptGroup) {
      size_t mark = Mark();
      for (NodeId part = m_.First(child); part; part = m_.Next(part)) Exec(part);
      Join(Take(mark), {});
    } else if (kind == Kind::kElse || kind == Kind::kFinally) {
      for (NodeId part = m_.First(child); part; part = m_.Next(part)) Exec(part);
    }
  }
}

void Executor::ExecWith(NodeId id) {
  int switches = 0;
  NodeId clause = m_.First(id);
  for (NodeId item = clause ? m_.First(clause) : 0; item; item = m_.Next(item)) {
    NodeId value = m_.First(item);
    if (!value) continue;
    NodeId target = 0;
    if (m_.KindOf(value) == Kind::kAsPattern) {
      for (NodeId part = m_.First(value); part; part = m_.Next(part)) {
        if (m_.KindOf(part) == Kind::kAsTarget) target = m_.First(part);
      }
      value = m_.First(value);
    }
    Value made = Eval(value);
    made.flags &= ~kContainer;
    if (target) Assign(target, made, value);
    switches += flow_.SwitchesGradOff(value);
  }
  no_grad_ += switches;
  if (NodeId body = m_.Child(id, Field::k_body)) ExecBlock(body);
  no_grad_ -= switches;
}

void Executor::ExecReturn(NodeId id) {
  NodeId value = m_.First(id);
  if (!value) return;
  Value whole = Eval(value);
  flow_.values_[id] = whole;
  FunctionFlow& flow = flow_.functions_[function_];
  std::vector<Value> elements;
  Kind kind = m_.KindOf(value);
  bool is_tuple = kind == Kind::kExpressionList || kind == Kind::kTuple;
  if (is_tuple) {
    for (NodeId child = m_.First(value); child && elements.size() < 16; child = m_.Next(child)) elements.push_back(flow_.values_[child]);
  } else {
    elements.push_back(whole);
  }
  if (flow.returns.empty()) {
    flow.returns = elements;
    flow.returns_tuple = is_tuple;
  } else if (flow.returns.size() == elements.size()) {
    for (size_t i = 0; i < elements.size(); ++i) flow.returns[i] = Union(flow.returns[i], elements[i]);
    flow.returns_tuple |= is_tuple;
  } else if (elements.size() > flow.returns.size() || (elements.size() == 1 && !(elements[0].flags & kNumber))) {
    for (size_t i = 0; i < std::min(elements.size(), flow.returns.size()); ++i) elements[i] = Union(flow.returns[i], elements[i]);
    flow.returns_tuple |= is_tuple;
    if (elements.size() > flow.returns.size()) flow.returns = elements;
  }
}

}  // namespace lowtide::lint
