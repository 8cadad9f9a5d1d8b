#include "lint/executor.h"

#include <algorithm>
#include <string>

namespace lowtide::lint {
namespace {

// Facts about the value that joins and operations keep together.
constexpr uint16_t kGraphFlags = kGrad | kMaybe | kBacked | kLossNamed;

Value Union(const Value& a, const Value& b) {
  Value joined;
  joined.flags = a.flags | b.flags;
  if (joined.flags & (kGrad | kMaybe)) joined.flags &= ~(kTensor | kNumber);
  bool unknown = (a.params && !(a.flags & kNumber)) || (b.params && !(b.flags & kNumber));
  if (joined.flags & kTensor || unknown) joined.flags &= ~kNumber;  // `parameter * 2` is what the parameter is
  // A graph that backward has run on is only harmless when all of it was.
  if ((a.flags & kGrad) && (b.flags & kGrad) && !(a.flags & b.flags & kBacked)) joined.flags &= ~kBacked;
  joined.params = a.params | b.params;
  joined.dep = a.dep && (a.attached() || !b.dep) ? a.dep : b.dep;
  return joined;
}

// Which rows of `names` say what a call by that name does.
bool In(Atom name, std::initializer_list<Atom> names) { return std::find(names.begin(), names.end(), name) != names.end(); }

bool MakesNumber(Atom name) {
  return In(name, {kA_item, kA_tolist, kA_numpy, kA_size, kA_dim, kA_numel, kA_nelement, kA_element_size, kA_data_ptr, kA_get_device,
                   kA_ndimension, kA___len__, kA_strip, kA_split, kA_join, kA_format, kA_is_contiguous, kA_qsize, kA_state_dict,
                   kA_named_parameters, kA_get_lr, kA_get_last_lr, kA_asnumpy, kA_to_numpy, kA_as_numpy});
}

bool DropsGraph(Atom name) {
  return In(name, {kA_detach, kA_detach_, kA_argmax, kA_argmin, kA_argsort, kA_eq, kA_ne, kA_gt, kA_lt, kA_ge, kA_le, kA_isnan, kA_isinf,
                   kA_isfinite, kA_long, kA_int, kA_bool, kA_byte, kA_nonzero, kA_bincount, kA_any, kA_all, kA_sign, kA_logical_and,
                   kA_logical_or, kA_logical_not, kA_multinomial, kA_one_hot, kA_equal, kA_allclose, kA_isclose, kA_searchsorted,
                   kA_histc, kA_bucketize, kA_unique, kA_floor, kA_ceil, kA_generate, kA_sample, kA_stop_gradient, kA_from_numpy,
                   kA_gather_for_metrics, kA_new_zeros, kA_new_tensor, kA_new_ones, kA_new_full, kA_new_empty, kA_get_rng_state});
}

bool MakesFreshTensor(Atom name) {
  return In(name, {kA_zeros, kA_ones, kA_rand, kA_randn, kA_randint, kA_randperm, kA_arange, kA_tensor, kA_full, kA_eye, kA_empty, kA_linspace,
                   kA_zeros_like, kA_ones_like, kA_rand_like, kA_randn_like, kA_full_like, kA_empty_like, kA_from_numpy, kA_Tensor,
                   kA_FloatTensor, kA_LongTensor, kA_logspace, kA_tril_indices, kA_triu_indices, kA_normal, kA_bernoulli});
}

}  // namespace

Executor::Executor(Flow& flow)
    : flow_(flow), m_(flow.module_), env_(m_.atoms().size()), known_(m_.atoms().size()), hints_(m_.atoms().size(), 255),
      attributes_(m_.classes().size()), frozen_(m_.atoms().size()) {}

uint8_t Executor::Hints(Atom name) {
  if (name >= hints_.size()) return 0;
  if (hints_[name] == 255) hints_[name] = HintsOf(m_.Name(name));
  return hints_[name];
}

uint32_t Executor::AddDep(Atom name, Atom cls, NodeId call, bool named_loss) {
  if (call && flow_.values_[call].dep) {  // a second pass over the same call
    uint32_t old = flow_.values_[call].dep;
    if (flow_.deps_[old].call == call && flow_.deps_[old].element == 255 && flow_.deps_[old].name == name) return old;
  }
  Dep dep;
  dep.name = name;
  dep.cls = cls;
  dep.call = call;
  dep.named_loss = named_loss;
  flow_.deps_.push_back(dep);
  return static_cast<uint32_t>(flow_.deps_.size() - 1);
}

// ---- environment

size_t Executor::SlotOf(Atom path) {
  if (path < 0x80000000u) return path;
  auto [at, fresh] = path_slots_.try_emplace(path, env_.size());
  if (fresh) {
    env_.emplace_back();
    known_.push_back(false);
    frozen_.push_back(false);
  }
  return at->second;
}

bool Executor::Known(Atom path) const {
  if (path < 0x80000000u) return known_[path];
  auto found = path_slots_.find(path);
  return found != path_slots_.end() && known_[found->second];
}

Value Executor::Get(Atom path) const {
  if (path < 0x80000000u) return env_[path];
  auto found = path_slots_.find(path);
  return found == path_slots_.end() ? Value{} : env_[found->second];
}

void Executor::Set(Atom path, const Value& value) {
  if (path == kNoAtom) return;
  size_t slot = SlotOf(path);
  Change change{path, env_[slot]};
  if (!known_[slot]) change.before.dep = UINT32_MAX;
  journal_.push_back(change);
  env_[slot] = value;
  known_[slot] = true;
}

void Executor::Undo(size_t mark) {
  while (journal_.size() > mark) {
    const Change& change = journal_.back();
    size_t slot = SlotOf(change.path);
    known_[slot] = change.before.dep != UINT32_MAX;
    env_[slot] = known_[slot] ? change.before : Value{};
    journal_.pop_back();
  }
}

std::vector<Executor::Change> Executor::Take(size_t mark) {
  std::vector<Change> taken;
  for (size_t i = mark; i < journal_.size(); ++i) taken.push_back({journal_[i].path, Get(journal_[i].path)});
  std::stable_sort(taken.begin(), taken.end(), [](const Change& a, const Change& b) { return a.path < b.path; });
  taken.erase(std::unique(taken.begin(), taken.end(), [](const Change& a, const Change& b) { return a.path == b.path; }), taken.end());
  Undo(mark);
  return taken;
}

void Executor::Join(const std::vector<Change>& a, const std::vector<Change>& b) {
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && a[i].path < b[j].path)) {
      Set(a[i].path, Known(a[i].path) ? Union(a[i].before, Get(a[i].path)) : a[i].before);
      ++i;
    } else if (i == a.size() || b[j].path < a[i].path) {
      Set(b[j].path, Known(b[j].path) ? Union(b[j].before, Get(b[j].path)) : b[j].before);
      ++j;
    } else {
      Set(a[i].path, Union(a[i].before, b[j].before));
      ++i, ++j;
    }
  }
}

// ---- functions

void Executor::Run() {
  for (NodeId call : m_.Calls(kA_requires_grad_)) {
    NodeId off = m_.Argument(call, 0);
    if (off && m_.KindOf(off) == Kind::kFalse) {
      if (Atom path = m_.Path(m_.Receiver(call))) frozen_[SlotOf(path)] = true;
    }
  }
  RunFunction(0);
  for (const ClassInfo& cls : m_.classes()) {
    auto found = cls.methods.find(kA___init__);
    if (found != cls.methods.end()) RunFunction(found->second);
  }
  for (size_t f = 1; f < m_.functions().size(); ++f) RunFunction(static_cast<int>(f));
}

void Executor::RunFunction(int function) {
  FunctionFlow& flow = flow_.functions_[function];
  if (flow.done || flow.active || depth_ > 8) return;
  const FunctionInfo& info = m_.functions()[function];
  if (info.parent != 0 && !flow_.functions_[info.parent].done && !flow_.functions_[info.parent].active) {
    RunFunction(info.parent);  // runs its nested functions too, in its environment
    if (flow.done) return;
  }
  // A function entered from another one's call must not see the caller's names.
  bool entered = depth_ > 0 && function_ != 0 && info.parent != function_;
  std::vector<Change> hidden;
  size_t base = 0;
  if (entered) {
    for (const Change& change : journal_) hidden.push_back({change.path, Get(change.path)});
    // The module's own names come first in the journal and stay.
    base = module_mark_;
    hidden.erase(hidden.begin(), hidden.begin() + static_cast<long>(std::min(base, hidden.size())));
    Undo(base);
  }
  int old_function = function_, old_no_grad = no_grad_;
  bool old_first = first_pass_;
  function_ = function;
  first_pass_ = false;
  no_grad_ = info.node && flow_.NoGradAt(info.body ? info.body : info.node) ? 1 : 0;
  ++depth_;
  flow.active = true;
  size_t mark = Mark();
  RunBody(function);
  if (info.owner >= 0) KeepAttributes(info.owner);
  if (function != 0) Undo(mark);
  if (function == 0) module_mark_ = Mark();
  flow_.functions_[function].active = false;
  flow_.functions_[function].done = true;
  --depth_;
  function_ = old_function;
  no_grad_ = old_no_grad;
  first_pass_ = old_first;
  for (const Change& change : hidden) Set(change.path, change.before);
}

void Executor::RunBody(int function) {
  const FunctionInfo& info = m_.functions()[function];
  if (function == 0) {
    for (NodeId child = m_.First(0); child; child = m_.Next(child)) Exec(child);
    return;
  }
  int cls = m_.ClassOf(info.node + 1);
  if (cls >= 0) {
    for (const auto& [path, value] : attributes_[cls]) Set(path, value);
  }
  for (size_t i = 0; i < info.parameters.size(); ++i) {
    Atom name = info.parameters[i];
    if (!name) continue;
    Value value;
    if (i < 16) value.params = static_cast<uint16_t>(1u << i);
    uint8_t hints = Hints(name);
    if (hints & kHintModel) value.flags |= kModel, value.params = 0;
    if (hints & kHintOptimizer) value.flags |= kOptimizer;
    if (hints & kHintLoader) value.flags |= kLoader;
    if (name == kA_self || name == kA_cls) value = Value{};
    Set(name, value);
  }
  if (info.body) ExecBlock(info.body);
}

// What `self.x` was set to stays known to the class's other methods, as far as it says what kind of thing it is.
void Executor::KeepAttributes(int cls) {
  constexpr uint16_t kKinds = kModel | kLossFn | kOptimizer | kLoader | kLeaf | kInstance | kContainer;
  auto& kept = attributes_[cls];
  for (NodeId id = m_.functions()[function_].body; id < m_[m_.functions()[function_].node].last; ++id) {
    if (m_.KindOf(id) != Kind::kAssignment) continue;
    NodeId left = m_.Child(id, Field::k_left);
    if (!left || m_.KindOf(left) != Kind::kAttribute || m_.RootName(left) != kA_self) continue;
    Atom path = m_.Path(left);
    Value value = Get(path);
    if (!path || !(value.flags & kKinds)) continue;
    if (!(value.flags & kLeaf)) value.flags &= ~kGrad;
    value.flags &= ~kMaybe;
    value.params = 0;
    bool present = std::any_of(kept.begin(), kept.end(), [&](const auto& entry) { return entry.first == path; });
    if (!present) kept.push_back({path, value});
  }
}

// ---- statements

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

Value Executor::Element(NodeId right, int index, const Value& whole) {
  Kind kind = right ? m_.KindOf(right) : Kind::kOther;
  if (kind == Kind::kParenthesized) return Element(m_.First(right), index, whole);
  if (kind == Kind::kExpressionList || kind == Kind::kTuple || kind == Kind::kList) {
    NodeId child = m_.First(right);
    for (int i = 0; child && i < index; ++i) child = m_.Next(child);
    return child && m_.KindOf(child) != Kind::kListSplat ? flow_.values_[child] : whole;
  }
  if (kind == Kind::kCall) {
    Atom name = m_.CalleeName(right);
    if (name == kA_enumerate) return index == 0 ? Value{kNumber, 0, 0} : flow_.values_[m_.Argument(right, 0)];
    if ((name == kA_max || name == kA_min || name == kA_topk || name == kA_sort || name == kA_mode || name == kA_median) && index == 1) {
      return Value{kTensor, 0, 0};  // the indexes
    }
    if (name == kA_zip) {
      if (NodeId argument = m_.Argument(right, index)) return flow_.values_[argument];
    }
    if (name == kA_items && index == 0) return Value{kNumber, 0, 0};
    int function = flow_.ResolveCall(right);
    if (function >= 0) {
      const FunctionFlow& flow = flow_.functions_[function];
      if (flow.returns_tuple && index < static_cast<int>(flow.returns.size())) return Apply(right, function, flow.returns[index]);
    }
  }
  if (whole.dep && flow_.deps_[whole.dep].element == 255 && index < 16 && !(whole.flags & kInstance)) {
    Dep dep = flow_.deps_[whole.dep];
    dep.element = static_cast<uint8_t>(index);
    flow_.deps_.push_back(dep);
    Value element = whole;
    element.dep = static_cast<uint32_t>(flow_.deps_.size() - 1);
    return element;
  }
  return whole;
}

void Executor::Assign(NodeId target, const Value& value, NodeId right) {
  switch (m_.KindOf(target)) {
    case Kind::kPatternList:
    case Kind::kTuplePattern:
    case Kind::kListPattern:
    case Kind::kExpressionList:
    case Kind::kTuple: {
      int index = 0;
      for (NodeId child = m_.First(target); child; child = m_.Next(child), ++index) {
        Value element = Element(right, index, value);
        element.flags &= ~kContainer;
        bool sure = index == 0 || Hints(m_.LastName(child)) & kHintLoss || !(element.flags & kLossNamed);
        if (!sure && element.flags & kGrad && element.dep) element.flags = (element.flags & ~kGrad) | kMaybe;
        else if (!sure && right && m_.KindOf(right) == Kind::kCall && flow_.ResolveCall(right) < 0) element.flags &= ~(kGrad | kMaybe);
        Assign(child, element, 0);
      }
      break;
    }
    case Kind::kListSplatPattern: if (NodeId inner = m_.First(target)) Assign(inner, value, 0); break;
    default: {
      flow_.values_[target] = value;
      if (m_.KindOf(target) == Kind::kSubscript || m_.KindOf(target) == Kind::kAttribute) {
        NodeId base = m_.Child(target, m_.KindOf(target) == Kind::kSubscript ? Field::k_value : Field::k_object);
        if (base) Eval(base);
        if (m_.KindOf(target) == Kind::kSubscript && value.attached()) {
          // The container now holds it.
          Atom path = m_.Path(base);
          if (path && path != kA_self) {
            Value holder = Get(path);
            if (!(holder.flags & kInstance)) {
              holder.flags |= (value.flags & (kGrad | kMaybe | kBacked)) | kContainer;
              if (!holder.dep) holder.dep = value.dep;
              Set(path, holder);
            }
          }
        }
      }
      if (m_.KindOf(target) == Kind::kAttribute && m_.LastName(target) == kA_requires_grad) {
        NodeId object = m_.Child(target, Field::k_object);
        if (right && m_.KindOf(right) == Kind::kTrue) {
          Value leaf = Get(m_.Path(object));
          leaf.flags |= kLeaf;
          Set(m_.Path(object), leaf);
        }
        break;
      }
      Atom path = m_.Path(target);
      Value kept = value;
      uint8_t hints = Hints(m_.LastName(target));
      if ((hints & kHintLoss) && kept.flags & (kGrad | kMaybe)) kept.flags |= kLossNamed;
      if ((hints & kHintLoader) && !kept.attached()) kept.flags |= kLoader;
      bool unsaid = !(kept.flags & (kGrad | kMaybe | kTensor | kNumber | kState | kContainer | kLossFn | kData));
      if (unsaid && (hints & kHintModel)) kept.flags |= kModel;
      if (unsaid && (hints & kHintOptimizer)) kept.flags |= kOptimizer;
      Set(path, kept);
      break;
    }
  }
}

// ---- expressions

Value Executor::Computed(Value value) const {
  value.flags &= ~(kContainer | kModel | kLossFn | kOptimizer | kLoader | kState | kData | kInstance);
  bool attaches = value.flags & (kGrad | kLeaf);
  value.flags &= ~kLeaf;
  if (no_grad_ > 0) {
    value.flags = (value.flags & kNumber) | (value.flags & (kGrad | kMaybe | kTensor) || attaches ? kTensor : 0);
    value.dep = 0;
    value.params = 0;
    return value;
  }
  if (attaches) value.flags |= kGrad;
  if (value.flags & (kGrad | kMaybe)) value.flags &= ~(kTensor | kNumber);
  return value;
}

Value Executor::Eval(NodeId id) {
  if (!id) return {};
  Value value = EvalUncached(id);
  flow_.values_[id] = value;
  return value;
}

Value Executor::EvalChildren(NodeId id) {
  Value joined;
  bool first = true;
  for (NodeId child = m_.First(id); child; child = m_.Next(child)) {
    Value value = Eval(child);
    joined = first ? value : Union(joined, value);
    first = false;
  }
  return joined;
}

Value Executor::EvalUncached(NodeId id) {
  switch (m_.KindOf(id)) {
    case Kind::kIdentifier: return EvalName(id);
    case Kind::kAttribute: return EvalAttribute(id, Eval(m_.Child(id, Field::k_object)));
    case Kind::kSubscript: return EvalSubscript(id);
    case Kind::kCall: return EvalCall(id);
    case Kind::kParenthesized:
    case Kind::kAwait:
    case Kind::kListSplat:
    case Kind::kDictSplat:
    case Kind::kFormatExpression:
    case Kind::kExpressionStatement:
      return EvalChildren(id);
    case Kind::kBinary:
    case Kind::kUnary: {
      Value value = EvalChildren(id);
      return Computed(value);
    }
    case Kind::kBoolOp: return EvalChildren(id);
    case Kind::kNot:
    case Kind::kCompare: {
      Value value = EvalChildren(id);
      return Value{static_cast<uint16_t>(value.flags & (kGrad | kTensor | kMaybe) ? kTensor : kNumber), 0, 0};
    }
    case Kind::kConditional: {
      // value, test, alternative
      NodeId first = m_.First(id), test = first ? m_.Next(first) : 0, other = test ? m_.Next(test) : 0;
      Value a = Eval(first);
      Eval(test);
      Value b = Eval(other);
      if (Atom tested = TypeTested(test)) {  // x.item() if torch.is_tensor(x) else x, and the other way round
        if (!a.attached() && !a.params && m_.Path(other) == tested) return a;
        if (!b.attached() && !b.params && m_.Path(first) == tested) return b;
      }
      return Union(a, b);
    }
    case Kind::kNamed: {
      Value value = Eval(m_.Child(id, Field::k_value));
      if (NodeId name = m_.Child(id, Field::k_name)) Set(m_.Path(name), value);
      return value;
    }
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kSet:
    case Kind::kDict:
    case Kind::kExpressionList: {
      Value value = EvalChildren(id);
      value.flags = (value.flags & kGraphFlags) | kContainer;
      if (!(value.flags & (kGrad | kMaybe))) value.dep = 0;
      return value;
    }
    case Kind::kPair: {
      Eval(m_.Child(id, Field::k_key));
      return Eval(m_.Child(id, Field::k_value));
    }
    case Kind::kKeywordArgument: return Eval(m_.Child(id, Field::k_value));
    case Kind::kListComp:
    case Kind::kDictComp:
    case Kind::kSetComp:
    case Kind::kGenerator: return EvalComprehension(id);
    case Kind::kString:
    case Kind::kConcatString:
      EvalChildren(id);
      return Value{kNumber, 0, 0};
    case Kind::kInterpolation: return EvalChildren(id);
    case Kind::kStringContent:
    case Kind::kInteger:
    case Kind::kFloat:
    case Kind::kTrue:
    case Kind::kFalse:
    case Kind::kNone: return Value{kNumber, 0, 0};
    case Kind::kLambda: return {};
    case Kind::kYield: {
      Value value = EvalChildren(id);
      flow_.values_[id] = value;
      return {};
    }
    case Kind::kAssignment:
    case Kind::kAugmentedAssignment: Exec(id); return {};
    case Kind::kFunction:
    case Kind::kClass: return {};
    default: return EvalChildren(id);
  }
}

Value Executor::EvalName(NodeId id) {
  Atom name = m_[id].atom;
  if (known_[name]) return env_[name];
  Value value;
  uint8_t hints = Hints(name);
  std::string_view text = m_.Name(name);
  bool is_class = text.size() > 1 && text[0] >= 'A' && text[0] <= 'Z' && text[1] >= 'a' && text[1] <= 'z';
  if (hints & kHintModel && !is_class) value.flags |= kModel;
  if (hints & kHintLoader) value.flags |= kLoader;
  if (hints & kHintOptimizer) value.flags |= kOptimizer;
  return value;
}

Value Executor::EvalAttribute(NodeId id, Value base) {
  NodeId object = m_.Child(id, Field::k_object);
  Atom name = m_.LastName(id);
  Atom path = m_.Path(id);
  if (path && Known(path)) return Get(path);
  switch (name) {
    case kA_data:
    case kA_grad: return Value{kTensor, 0, 0};
    case kA_shape:
    case kA_device:
    case kA_dtype:
    case kA_ndim:
    case kA_grad_fn:
    case kA_requires_grad:
    case kA_is_cuda: return Value{kNumber, 0, 0};
    default: break;
  }
  bool of_self = m_.KindOf(object) == Kind::kIdentifier && m_[object].atom == kA_self;
  if (base.attached()) {
    base.flags &= ~kContainer;
    return base;
  }
  if (base.params && !of_self && !(base.flags & (kModel | kLossFn))) {  // a parameter's attribute
    Value value;
    value.params = base.params;
    uint8_t hints = Hints(name);
    if (hints & kHintModel) value.flags |= kModel, value.params = 0;
    if (hints & kHintLoader) value.flags |= kLoader;
    if (hints & kHintOptimizer) value.flags |= kOptimizer;
    return value;
  }
  if (m_.IsTorch(id)) return {};
  Value value;
  if (base.flags & kData) value.flags |= kData;
  uint8_t hints = Hints(name);
  if (hints & kHintModel) value.flags |= kModel;
  if (hints & kHintLoader) value.flags |= kLoader;
  if (hints & kHintOptimizer) value.flags |= kOptimizer;
  if (base.flags & kModel && name == kA_module) value.flags |= kModel;
  return value;
}

Value Executor::EvalSubscript(NodeId id) {
  NodeId base_id = m_.Child(id, Field::k_value);
  Value base = Eval(base_id);
  for (NodeId child = m_.First(id); child; child = m_.Next(child)) {
    if (child != base_id) Eval(child);
  }
  Atom path = m_.Path(id);
  if (path && Known(path)) return Get(path);
  NodeId index = m_.Child(id, Field::k_subscript);
  if (index && m_.KindOf(index) == Kind::kInteger && m_.Text(index).size() == 1) {
    return Element(base_id, m_.Text(index)[0] - '0', base);
  }
  base.flags &= ~(kContainer | kLoader);
  if (base.flags & kState) base.flags &= ~kModel;
  return base;
}

Value Executor::EvalComprehension(NodeId id) {
  size_t mark = Mark();
  NodeId body = m_.Child(id, Field::k_body);
  for (NodeId child = m_.First(id); child; child = m_.Next(child)) {
    if (m_.KindOf(child) == Kind::kForIn) {
      NodeId left = m_.Child(child, Field::k_left), right = m_.Child(child, Field::k_right);
      Value items = right ? Eval(right) : Value{};
      items.flags &= ~(kContainer | kLoader | kInstance);
      if (left) Assign(left, items, right);
    } else if (m_.KindOf(child) == Kind::kIfClause) {
      EvalChildren(child);
    }
  }
  Value value = body ? Eval(body) : Value{};
  Undo(mark);
  value.flags = (value.flags & kGraphFlags) | kContainer;
  return value;
}

Value Executor::Constructor(NodeId call, Atom name) {
  std::string_view text = m_.Name(name);
  Value value;
  int cls = m_.FindClass(name);
  if (cls >= 0 && m_.IsNnModule(cls)) value.flags |= kModel;
  if (HasHint(text, {"loss", "criterion"})) value.flags = (value.flags & ~kModel) | kLossFn;
  if (name == kA_DataLoader || text.ends_with("DataLoader") || text.ends_with("Loader")) value.flags |= kLoader;
  NodeId callee = m_.Callee(call);
  if (m_.KindOf(callee) == Kind::kAttribute && m_.LastName(m_.Child(callee, Field::k_object)) == kA_optim) value.flags |= kOptimizer;
  if (HintsOf(text) & (kHintModel) && !(value.flags & kLossFn)) value.flags |= kModel;
  if (In(name, {kA_DistributedDataParallel, kA_DataParallel, kA_DDP, kA_Sequential, kA_FullyShardedDataParallel})) value.flags |= kModel;
  if (m_.IsTorch(callee) && !(value.flags & (kLossFn | kOptimizer | kLoader))) {
    std::string qualified = m_.Qualified(callee);
    if (qualified.starts_with("torch.nn.") || qualified.starts_with("torchvision.models")) value.flags |= kModel;
    if (qualified == "torch.nn.Parameter" || qualified == "torch.nn.parameter.Parameter") value.flags = kLeaf;
    if (qualified.starts_with("torch.optim.")) value.flags = kOptimizer;
  }
  if (!m_.IsTorch(callee) || value.flags & kLossFn) {
    value.flags |= kInstance;
    value.dep = AddDep(name, kNoAtom, call, false);
  }
  return value;
}

void Executor::MarkBacked(NodeId id) {
  while (id && m_.KindOf(id) == Kind::kParenthesized) id = m_.First(id);
  if (!id) return;
  if (m_.KindOf(id) == Kind::kCall || m_.KindOf(id) == Kind::kBinary) {  // (loss / n).backward(), loss.mean().backward()
    for (NodeId at = id; at < m_[id].last; ++at) {
      if (m_.KindOf(at) == Kind::kIdentifier || m_.KindOf(at) == Kind::kAttribute) {
        Atom path = m_.Path(at);
        if (path && Known(path) && Get(path).attached()) MarkBacked(at);
      }
    }
    return;
  }
  Atom path = m_.Path(id);
  if (!path) return;
  Value value = Get(path);
  value.flags = (value.flags | kGrad | kBacked) & ~(kTensor | kNumber | kMaybe);
  value.dep = 0;
  Set(path, value);
  flow_.values_[id] = value;
  // What it was made of shares the graph: `out["loss"].backward()` frees out's too.
  if (m_.KindOf(id) == Kind::kSubscript || m_.KindOf(id) == Kind::kAttribute) {
    NodeId base = m_.Child(id, m_.KindOf(id) == Kind::kSubscript ? Field::k_value : Field::k_object);
    Atom base_path = m_.Path(base);
    if (base_path && base_path != kA_self) {
      Value holder = Get(base_path);
      holder.flags = (holder.flags | kGrad | kBacked) & ~(kTensor | kNumber | kMaybe);
      holder.dep = 0;
      Set(base_path, holder);
    }
  }
}

Value Executor::EvalCall(NodeId id) {
  NodeId callee = m_.Callee(id), list = m_.Child(id, Field::k_arguments);
  Atom name = m_.CalleeName(id);
  Value object, function;
  NodeId receiver = callee && m_.KindOf(callee) == Kind::kAttribute ? m_.Child(callee, Field::k_object) : 0;
  if (receiver) {
    object = Eval(receiver);
    function = EvalAttribute(callee, object);
    flow_.values_[callee] = function;
  } else {
    function = Eval(callee);
  }
  Value arguments = list ? (m_.KindOf(list) == Kind::kArgumentList ? EvalChildren(list) : Eval(list)) : Value{};
  // backward() in its many spellings
  if (name == kA_backward || name == kA_manual_backward) {
    NodeId first = m_.Argument(id, 0);
    if (first && flow_.values_[first].flags & (kGrad | kMaybe | kLossNamed)) MarkBacked(first);
    else if (first && name == kA_manual_backward) MarkBacked(first);
    else if (first && receiver && In(m_.LastName(receiver), {kA_accelerator, kA_fabric, kA_engine})) MarkBacked(first);
    else if (receiver && m_.KindOf(receiver) == Kind::kCall && m_.Argument(receiver, 0)) MarkBacked(m_.Argument(receiver, 0));
    else if (receiver && m_.KindOf(receiver) != Kind::kCall && m_.LastName(receiver) != kA_autograd) MarkBacked(receiver);
    return {};
  }
  if (!name) {
    if (callee && m_.KindOf(callee) == Kind::kCall) {  // nn.CrossEntropyLoss()(output, target)
      Value result = arguments;
      if (function.flags & (kModel | kLossFn)) result.flags |= kGrad | (function.flags & kLossFn ? kLossNamed : 0);
      return Computed(result);
    }
    if (function.flags & kModel && no_grad_ == 0) return Value{kGrad, 0, 0};
    Value result = arguments;
    result.flags &= ~kGrad;
    return Computed(result);
  }
  bool known = false;
  if (!receiver) {
    Value result = EvalBuiltin(id, name, arguments, known);
    if (known) return result;
  } else if (!m_.IsTorch(callee)) {
    Value result = EvalMethod(id, name, object, arguments, known);
    if (known) return result;
  }
  if (m_.IsTorch(callee)) return EvalTorch(id, name, arguments);
  std::string_view text = m_.Name(name);
  int in_file = flow_.ResolveCall(id);
  bool camel = !text.empty() && (text[0] >= 'A' && text[0] <= 'Z');
  bool self_call = !receiver && name == kA_self;
  if (in_file < 0 && camel && !(function.flags & kInstance)) return Constructor(id, name);
  if (in_file < 0 && !receiver && m_.FindClass(name) >= 0) return Constructor(id, name);
  // create_model(...), get_network(...): makes a model, does not run one.
  bool builds = Hints(name) & kHintModel && !(function.flags & kInstance) && !Known(m_.Path(callee)) && IsBuilderName(text);
  if (builds && in_file < 0) return Value{kModel, 0, 0};
  // Text to numbers and back: model.tokenize(...), model.tok_decode(...).
  if (in_file < 0 && HasHint(text, {"tokeniz", "tok_"})) return Value{kNumber, 0, 0};
  // Frozen or momentum copies give no graph of their own.
  Atom path = m_.Path(callee);
  bool frozen = (path && path_slots_.count(path) && frozen_[path_slots_[path]]) || (path < 0x80000000u && frozen_[path]) ||
                (Hints(name) & kHintFrozen);
  bool is_model = (function.flags & kModel && !(function.flags & kLossFn)) || (self_call && m_.IsNnModule(m_.ClassOf(id))) ||
                  (name == kA_forward && receiver && (object.flags & kModel || m_.LastName(receiver) == kA_self));
  if (receiver && (Hints(name) & kHintModel) && Hints(name) != (kHintModel | kHintLoss) && in_file < 0) is_model = true;
  if (receiver && In(name, {kA_training_step, kA_compute_loss})) is_model |= in_file < 0 && object.flags & kModel;
  if (is_model) {
    if (no_grad_ > 0 || frozen) return Value{kTensor, 0, 0};
    if (in_file >= 0) {
      Value result = EvalKnownFunction(id, in_file);
      const FunctionInfo& info = m_.functions()[in_file];
      // A module's forward calls layers that are made elsewhere: they may hold parameters, whatever it looks like here.
      bool forward = (info.name == kA_forward || info.name == kA___call__) && m_.IsNnModule(m_.ClassOf(info.body)) && !flow_.NoGradAt(info.body);
      bool plain = result.flags & (kTensor | kNumber) && !result.attached() && !result.params;
      if (plain && (!forward || !(result.flags & kTensor))) return result;
    }
    Value result{kGrad, 0, 0};
    // What a class of the project returns, forward() or the method says: maybe a plain number among the tensors.
    NodeId into = m_.KindOf(m_[id].parent) == Kind::kAssignment ? m_.Child(m_[id].parent, Field::k_left) : 0;
    bool unpacked = into && (m_.KindOf(into) == Kind::kPatternList || m_.KindOf(into) == Kind::kTuplePattern);
    if (unpacked && in_file < 0 && function.flags & kInstance && function.dep) result.dep = AddDep(flow_.deps_[function.dep].name, kNoAtom, id, false);
    if (in_file < 0 && receiver && object.flags & kInstance && object.dep && In(name, {kA_training_step, kA_compute_loss})) {
      result.dep = AddDep(name, flow_.deps_[object.dep].name, id, false);
    }
    if (result.dep) flow_.deps_[result.dep].given = true;
    return result;
  }
  if (function.flags & kLossFn && in_file < 0) {
    if (no_grad_ > 0) return Value{kTensor, 0, 0};
    Value result;
    result.flags = kGrad | kLossNamed;
    if (function.flags & kInstance) {
      result.dep = AddDep(flow_.deps_[function.dep].name, kNoAtom, id, true);
      flow_.deps_[result.dep].given = arguments.attached();
    }
    return result;
  }
  if (in_file >= 0) return EvalKnownFunction(id, in_file);
  return EvalUnknown(id, name, object, arguments);
}

Value Executor::EvalBuiltin(NodeId call, Atom name, const Value& arguments, bool& known) {
  known = true;
  switch (name) {
    case kA_float:
    case kA_int:
    case kA_len:
    case kA_str:
    case kA_bool:
    case kA_repr:
    case kA_round:
    case kA_format:
    case kA_isinstance:
    case kA_hasattr:
    case kA_id:
    case kA_type:
    case kA_print:
    case kA_range:
    case kA_open: return Value{kNumber, 0, 0};
    case kA_sum:
    case kA_abs:
    case kA_max:
    case kA_min: return Computed(arguments);
    case kA_list:
    case kA_tuple:
    case kA_dict:
    case kA_set:
    case kA_sorted:
    case kA_reversed:
    case kA_deque:
    case kA_defaultdict:
    case kA_OrderedDict: {
      Value value;
      value.flags = (arguments.flags & kGraphFlags) | kContainer;
      value.dep = arguments.attached() ? arguments.dep : 0;
      value.params = arguments.params;
      return value;
    }
    case kA_zip:
    case kA_enumerate:
    case kA_iter:
    case kA_next:
    case kA_tqdm:
    case kA_map:
    case kA_filter: {
      Value value = arguments;
      value.flags &= ~kContainer;
      if (value.flags & kLoader) value.flags = (value.flags & ~kLoader) | kData | (name == kA_next ? 0 : static_cast<int>(kLoader));
      return value;
    }
    case kA_super:
    case kA_getattr: return {};
    case kA_Parameter: return Value{kLeaf, 0, 0};
    default: break;
  }
  known = false;
  (void)call;
  return {};
}

Value Executor::EvalMethod(NodeId call, Atom name, const Value& object, const Value& arguments, bool& known) {
  known = true;
  NodeId receiver = m_.Receiver(call);
  bool of_self = m_.KindOf(receiver) == Kind::kIdentifier && m_[receiver].atom == kA_self;
  if (of_self && flow_.ResolveCall(call) >= 0) {
    known = false;
    return {};
  }
  if (MakesNumber(name)) return Value{static_cast<uint16_t>(kNumber | (name == kA_state_dict ? kState : 0)), 0, 0};
  if (DropsGraph(name)) return Value{kTensor, 0, 0};
  auto root = m_.imports().find(m_.RootName(receiver));
  if (root != m_.imports().end() && (root->second == "numpy" || root->second.compare(0, 6, "numpy.") == 0 || root->second == "math" ||
                                     root->second == "random" || root->second == "time")) {
    return Value{kNumber, 0, 0};
  }
  switch (name) {
    case kA_append:
    case kA_extend:
    case kA_appendleft:
    case kA_insert: {  // the container holds it from here on
      if (Atom path = m_.Path(receiver); path && path != kA_self && arguments.attached()) {
        Value holder = Get(path);
        holder.flags |= (arguments.flags & (kGrad | kMaybe | kBacked)) | kContainer;
        if (!holder.dep || holder.flags & kInstance) holder.dep = arguments.dep;
        holder.flags &= ~kInstance;
        Set(path, holder);
      }
      return Value{kNumber, 0, 0};
    }
    case kA_clear:
      if (Atom path = m_.Path(receiver)) Set(path, Value{kContainer, 0, 0});
      return Value{kNumber, 0, 0};
    case kA_items:
    case kA_values:
    case kA_get:
    case kA_pop:
    case kA_copy:
    case kA_popleft: {
      Value value = object;
      value.flags &= ~kContainer;
      if (name == kA_get && !object.attached()) known = object.flags & (kContainer | kData | kNumber);
      return value;
    }
    case kA_keys: return Value{kNumber, 0, 0};
    case kA_cuda:
    case kA_to:
    case kA_train:
    case kA_eval:
    case kA_half:
    case kA_float:
    case kA_double:
    case kA_cpu:
    case kA_requires_grad_: {
      Value value = object;
      if (name == kA_requires_grad_ && !(object.flags & kModel)) {
        NodeId off = m_.Argument(call, 0);
        if (!off || m_.KindOf(off) != Kind::kFalse) {
          value.flags |= kLeaf;
          if (Atom path = m_.Path(receiver)) Set(path, value);
        }
      }
      if (name == kA_cuda) value.flags |= kCuda;
      if (name == kA_cpu) value.flags &= ~kCuda;
      if (name == kA_to && arguments.flags & kNumber && m_.text().substr(m_[call].start, m_[call].end - m_[call].start).find("cuda") != std::string_view::npos) {
        value.flags |= kCuda;
      }
      return value;
    }
    case kA_prepare: {
      Value value = arguments;
      value.flags &= ~kContainer;
      return value;
    }
    case kA_numpy: return Value{kNumber, 0, 0};
    default: break;
  }
  if (object.flags & kModel && In(name, {kA_type, kA_apply, kA_bfloat16, kA_share_memory, kA_to_empty, kA_compile})) return object;
  // A tensor's method on something attached.
  if (object.attached() && !(object.flags & (kModel | kLossFn | kInstance))) return Computed(Union(object, arguments));
  if (object.flags & kTensor) return Computed(Union(object, arguments));
  if (object.flags & kLeaf) return Computed(Union(object, arguments));
  if (object.params && !(object.flags & (kModel | kLossFn | kOptimizer | kLoader | kInstance)) && !of_self) {
    Value value = Union(object, arguments);
    value.flags &= ~(kContainer | kModel);
    return Computed(value);
  }
  if (object.flags & kLoader) {
    Value value;
    value.flags = kData;
    return value;
  }
  known = false;
  return {};
}

Value Executor::EvalTorch(NodeId call, Atom name, const Value& arguments) {
  if (name == kA_grad) {  // torch.autograd.grad
    NodeId create = m_.Keyword(call, kA_create_graph);
    return Value{static_cast<uint16_t>(create && m_.KindOf(create) == Kind::kTrue ? kGrad : kTensor), 0, 0};
  }
  if (name == kA_load) return Value{kState, 0, 0};
  if (MakesFreshTensor(name)) {
    NodeId wants = m_.Keyword(call, kA_requires_grad);
    uint16_t flags = wants && m_.KindOf(wants) == Kind::kTrue ? kTensor | kLeaf : kTensor;
    return Value{flags, 0, 0};
  }
  if (name == kA_all_gather && m_.Qualified(m_.Callee(call)).find(".nn.") != std::string::npos) return Computed(arguments);
  if (DropsGraph(name) || In(name, {kA_no_grad, kA_inference_mode, kA_save, kA_manual_seed, kA_is_tensor, kA_all_gather})) {
    return Value{kTensor, 0, 0};
  }
  std::string_view text = m_.Name(name);
  bool camel = !text.empty() && text[0] >= 'A' && text[0] <= 'Z';
  if (camel && name != kA_Variable) return Constructor(call, name);
  Value result = arguments;
  result.flags &= ~(kContainer | kModel | kData);
  result = Computed(result);
  if (!result.attached() && !result.params) {
    result.flags |= kTensor;
    result.flags &= ~kNumber;
    result.dep = 0;
  }
  return result;
}

Value Executor::EvalKnownFunction(NodeId call, int function) {
  RunFunction(function);
  const FunctionFlow flow = flow_.functions_[function];
  if (flow.active || !flow.done) {  // recursion
    Value result;
    return result;
  }
  if (flow.returns.empty()) return Value{kNumber, 0, 0};
  Value joined = Apply(call, function, flow.returns[0]);
  for (size_t i = 1; i < flow.returns.size(); ++i) joined = Union(joined, Apply(call, function, flow.returns[i]));
  return joined;
}

// A returned value as the caller sees it: what depends on parameters is attached when the arguments are.
Value Executor::Apply(NodeId call, int function, const Value& returned) {
  Value value = returned;
  value.params = 0;
  if (no_grad_ > 0 && returned.flags & (kGrad | kMaybe)) {
    value.flags = kTensor;
    value.dep = 0;
    return value;
  }
  if (!returned.params) return value;
  const FunctionInfo& info = m_.functions()[function];
  bool bound = info.owner >= 0 && !info.parameters.empty() && (info.parameters[0] == kA_self || info.parameters[0] == kA_cls);
  for (size_t i = 0; i < info.parameters.size() && i < 16; ++i) {
    if (!(returned.params >> i & 1)) continue;
    int position = static_cast<int>(i) - (bound ? 1 : 0);
    NodeId argument = position < 0 ? m_.Receiver(call) : m_.Argument(call, position, info.parameters[i]);
    if (!argument) continue;
    const Value& given = flow_.values_[argument];
    value.flags |= given.flags & (kGrad | kMaybe | kBacked | kLossNamed);
    value.params |= given.params;
    if (!value.dep && given.attached()) value.dep = given.dep;
  }
  return Computed(value);
}

Value Executor::EvalUnknown(NodeId call, Atom name, const Value& object, const Value& arguments) {
  uint8_t hints = Hints(name);
  NodeId receiver = m_.Receiver(call);
  bool loss_named = hints & kHintLoss && name != kA_loss_fn;
  loss_named |= (hints & kHintLoss) != 0;
  Atom cls = flow_.InstanceClass(receiver);
  Value result;
  if (no_grad_ > 0) {
    result.flags = arguments.attached() || loss_named ? kTensor : 0;
    return result;
  }
  result.dep = AddDep(name, cls, call, loss_named);
  flow_.deps_[result.dep].given = arguments.attached() || object.attached();
  bool has_arguments = m_.First(m_.Child(call, Field::k_arguments)) != 0;
  if (loss_named && has_arguments && (arguments.attached() || (!receiver && arguments.params) || object.flags & kModel ||
                                      name == kA_criterion || name == kA_loss_fn)) {
    result.flags = kGrad | kLossNamed;
  } else if (arguments.attached()) {
    result.flags = kMaybe;
  }
  return result;
}

}  // namespace lowtide::lint
