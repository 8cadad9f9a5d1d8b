#include "lint/executor_values.h"

// The executor itself: its environment of values with the journal that undoes branches, and how functions are entered.
namespace lowtide::lint {

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

Executor::Executor(Flow& flow)
    : flow_(flow), m_(flow.module_), env_(m_.atoms().size()), known_(m_.atoms().size()), hints_(m_.atoms().size(), 255),
      attributes_(m_.classes().size()), frozen_(m_.atoms().size()) {
  for (NodeId id = 1; id < m_.size(); ++id) {
    if (m_.KindOf(id) != Kind::kSubscript) continue;
    Atom base = m_.Path(m_.Child(id, Field::k_value)), path = m_.Path(id);
    if (!base || !path) continue;
    std::vector<Atom>& parts = parts_[base];
    if (std::find(parts.begin(), parts.end(), path) == parts.end()) parts.push_back(path);
  }
}

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

}  // namespace lowtide::lint
