#include <unordered_set>

#include "lint/rules.h"

// LT109: hooks that pile up tensors, and hooks that are added again on every call.
namespace lowtide::lint {
namespace {

class Rule109 {
 public:
  Rule109(const Scope& scope, Reporter& report) : scope_(scope), m_(scope.module), flow_(scope.flow), report_(report) {}

  void Run() {
    for (NodeId call : m_.Calls({kA_register_forward_hook, kA_register_forward_pre_hook, kA_register_full_backward_hook, kA_register_backward_hook,
                                 kA_register_full_backward_pre_hook})) {
      NodeId hook = m_.Argument(call, 0);
      if (!hook || !m_.Receiver(call)) continue;
      CheckStores(call, hook);
      CheckRepeated(call);
    }
    for (NodeId call : m_.Calls(kA_register_hook)) {
      NodeId hook = m_.Argument(call, 0);
      if (hook && m_.Receiver(call)) CheckStores(call, hook);
    }
  }

 private:
  // The body of the function that is registered: a lambda, a nested function, a method, what a factory returns.
  std::pair<NodeId, std::vector<Atom>> HookBody(NodeId hook) const {
    if (m_.KindOf(hook) == Kind::kLambda) {
      std::vector<Atom> names;
      if (NodeId parameters = m_.Child(hook, Field::k_parameters)) {
        for (NodeId child : m_.Children(parameters)) {
          if (m_.KindOf(child) == Kind::kIdentifier) names.push_back(m_[child].atom);
        }
      }
      return {m_.Child(hook, Field::k_body), names};
    }
    NodeId named = hook;
    if (m_.KindOf(hook) == Kind::kCall) {  // partial(f, ...), or a factory
      Atom callee = m_.CalleeName(hook);
      if (callee == kA_partial) named = m_.Argument(hook, 0);
      else named = m_.Callee(hook);
    }
    Atom name = m_.LastName(named);
    if (!name) return {0, {}};
    int found = -1;
    for (size_t f = 1; f < m_.functions().size(); ++f) {
      if (m_.functions()[f].name == name) found = static_cast<int>(f);
    }
    if (found < 0) return {0, {}};
    if (m_.KindOf(hook) == Kind::kCall && m_.CalleeName(hook) != kA_partial) {  // the factory's inner function
      for (size_t g = found + 1; g < m_.functions().size(); ++g) {
        if (m_.functions()[g].parent == found) return {m_.functions()[g].body, m_.functions()[g].parameters};
      }
      return {0, {}};
    }
    return {m_.functions()[found].body, m_.functions()[found].parameters};
  }

  bool Detached(NodeId stored) const {
    for (NodeId id = stored; id < m_[stored].last; ++id) {
      if (m_.KindOf(id) == Kind::kCall) {
        Atom name = m_.CalleeName(id);
        if (name == kA_detach || name == kA_item || name == kA_float || name == kA_numpy || name == kA_tolist || name == kA_str || name == kA_len || name == kA_size || name == kA_numel) return true;
      }
      if (m_.KindOf(id) == Kind::kAttribute && (m_.LastName(id) == kA_data || m_.LastName(id) == kA_shape)) return true;
      if (m_.KindOf(id) == Kind::kString) return true;
    }
    return false;
  }

  // Emptied, or taken with a handle that is removed: `xs.clear()`, `self.xs = []` in another method.
  bool Emptied(NodeId holder, NodeId at) const {
    Atom path = m_.Path(holder), last = m_.LastName(holder);
    int function = m_.FunctionOf(at);
    for (NodeId call : m_.Calls({kA_clear, kA_pop, kA_popleft, kA_remove, kA_reset})) {
      NodeId receiver = m_.Receiver(call);
      if (receiver && (m_.Path(receiver) == path || m_.LastName(receiver) == last)) return true;
    }
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (!left || !right || m_.Inside(at, id)) continue;
      if (m_.LastName(left) != last) continue;
      if (m_.Contains(right, {kA_maxlen})) return true;
      int where = m_.FunctionOf(id);
      const FunctionInfo& info = m_.functions()[where];
      if (info.name == kA___init__ || where == 0) continue;
      if (where == function) continue;
      if (m_.KindOf(left) == Kind::kAttribute) return true;  // a method that starts anew
      if (where == m_.functions()[function].parent) return true;  // a local of the registering function: it dies with it
    }
    for (NodeId id : m_.Nodes(Kind::kDelete)) {
      for (NodeId at_delete = id; at_delete < m_[id].last; ++at_delete) {
        if (last && m_.KindOf(at_delete) == Kind::kIdentifier && m_[at_delete].atom == last) return true;
      }
    }
    return false;
  }

  // `register_forward_hook(make_hook(self.outputs))`: the list has another name where it is emptied.
  bool GivenEmptied(NodeId hook, NodeId holder, NodeId at) const {
    if (m_.KindOf(hook) != Kind::kCall || m_.KindOf(holder) != Kind::kIdentifier) return false;
    for (int i = 0; i < 6; ++i) {
      NodeId given = m_.Argument(hook, i);
      if (!given) return false;
      if (m_.KindOf(given) == Kind::kAttribute && (Emptied(given, at) || EmptiedElsewhere(given))) return true;
    }
    return false;
  }

  // In a method that no rule asks for, and which is not parsed: the text tells.
  bool EmptiedElsewhere(NodeId holder) const {
    std::string name(m_.Name(m_.LastName(holder)));
    size_t first = m_.text().find(name + " = []");
    return m_.text().find("del self." + name) != std::string_view::npos || m_.text().find(name + ".clear()") != std::string_view::npos ||
           (first != std::string_view::npos && m_.text().find(name + " = []", first + 1) != std::string_view::npos);
  }

  bool HandleRemoved() const { return !m_.Calls(kA_remove).empty(); }

  void CheckStores(NodeId call, NodeId hook) {
    auto [body, parameters] = HookBody(hook);
    if (!body || !seen_.insert(body).second) return;
    for (NodeId id = body; id < m_[body].last; ++id) {
      if (m_.KindOf(id) != Kind::kCall) continue;
      Atom name = m_.CalleeName(id);
      if (name != kA_append && name != kA_extend && name != kA_appendleft) continue;
      NodeId stored = m_.Argument(id, 0), holder = m_.Receiver(id);
      if (!stored || !holder || flow_.NoGradAt(id)) continue;
      bool of_hook = false;
      for (Atom parameter : parameters) of_hook |= parameter && parameter != kA_self && m_.Contains(stored, {parameter}) && parameter != parameters[m_.FunctionOf(body) > 0 && parameters.size() > 3 ? 1 : 0];
      if (!of_hook || Detached(stored) || Emptied(holder, id) || GivenEmptied(hook, holder, id)) continue;
      Atom root = m_.RootName(holder);
      bool is_module = parameters.size() >= 2 && m_.KindOf(stored) == Kind::kIdentifier && HasHint(m_.Text(stored), {"module", "layer"});
      if (is_module || !root || IsTestFile(m_.path())) continue;
      if (EmptiedElsewhere(holder)) {
        report_.Add(id, Severity::kNote,
                    {"this hook appends " + Quoted(m_, stored) + " to " + Quoted(m_, holder) + " with its graph: all of it stays until the list is emptied",
                     "这个钩子把 " + Quoted(m_, stored) + " 连同计算图追加到 " + Quoted(m_, holder) + "：在列表清空之前全部留在内存中"},
                    {"store .detach() unless the graph is wanted, and empty the list every step",
                     "除非需要计算图，否则存入 .detach() 的结果，并在每一步清空列表"});
        continue;
      }
      report_.Add(id, Severity::kWarning,
                  {"this hook appends " + Quoted(m_, stored) + " to " + Quoted(m_, holder) + " on every call, graph and all, and nothing empties it",
               "这个钩子每次调用都把 " + Quoted(m_, stored) + " 连同计算图追加到 " + Quoted(m_, holder) + "，而且从不清空"},
                  {"store .detach(), empty the list every step, and keep the handle to remove the hook",
               "存入 .detach() 的结果，每一步清空列表，并保留句柄以便移除钩子"});
    }
    (void)call;
  }

  // Registered where the program passes again and again: beside the model's forward, handle thrown away.
  void CheckRepeated(NodeId call) {
    NodeId up = m_[call].parent;
    int function = m_.FunctionOf(call);
    if (function == 0 || IsTestFile(m_.path())) return;
    const FunctionInfo& info = m_.functions()[function];
    if (info.name == kA_forward && m_.IsNnModule(info.owner)) return CheckInForward(call, info);
    if (m_.KindOf(up) != Kind::kExpressionStatement) return;  // the handle is used
    if (info.name == kA___init__ || info.name == kA_main || info.owner >= 0) {
      if (!TrainingLoop(m_, flow_, call)) return;
    }
    if (HandleRemoved()) return;
    bool in_step_loop = TrainingLoop(m_, flow_, call) != 0 && !IsLayerLoop(m_.EnclosingLoop(call));
    bool runs_model = false;
    for (NodeId id : m_.Nodes(Kind::kCall)) {
      if (!m_.Inside(id, info.body) || m_.FunctionOf(id) != function) continue;
      runs_model |= (flow_.Of(m_.Callee(id)).flags & kModel) != 0 && flow_.Of(id).attached();
    }
    runs_model &= CallsBackward(m_, flow_, info.body);
    // A model made in this function dies with its hooks.
    Atom root = m_.RootName(m_.Receiver(call));
    NodeId loop = m_.EnclosingLoop(call);
    if (loop && m_.KindOf(loop) == Kind::kFor && m_.HasPath(m_.Child(loop, Field::k_left), root)) root = m_.RootName(LoopSource(loop));
    if (root && AssignedIn(function, root)) return;
    if (!in_step_loop && !runs_model) return;
    report_.Add(call, Severity::kWarning,
                {in_step_loop ? "a hook is registered in every step and never removed: each forward runs one more of them"
                              : "`" + std::string(m_.Name(info.name)) + "` registers a hook on every call and drops the handle: the hooks add up",
                 in_step_loop ? "每一步都注册钩子且从不移除：每次前向都会多运行一个"
                              : "`" + std::string(m_.Name(info.name)) + "` 每次调用都注册钩子并丢弃句柄：钩子越积越多"},
                {"keep the handle and call handle.remove() when done",
               "保留句柄，用完后调用 handle.remove()"});
  }

  // forward() runs in every step: a hook that it puts on a part of the module, each time anew.
  void CheckInForward(NodeId call, const FunctionInfo& info) {
    NodeId up = m_[call].parent;
    const bool kept = m_.KindOf(up) == Kind::kAssignment && m_.KindOf(m_.Child(up, Field::k_left)) == Kind::kIdentifier;  // in a local
    if ((m_.KindOf(up) != Kind::kExpressionStatement && !kept) || HandleRemoved()) return;
    if (m_.RootName(m_.Receiver(call)) != kA_self || GuardAround(m_, call, info.body)) return;
    report_.Add(call, Severity::kWarning,
                {"`forward` registers a hook on every call and never removes it: each forward runs one more of them",
                 "`forward` 每次调用都注册钩子且从不移除：每次前向都会多运行一个"},
                {"register it once, in __init__, or keep the handle and call handle.remove() at the end of forward",
                 "在 __init__ 中只注册一次，或保留句柄并在 forward 结束时调用 handle.remove()"});
  }

  NodeId LoopSource(NodeId loop) const {
    NodeId items = m_.Child(loop, Field::k_right);
    return items;
  }

  bool IsLayerLoop(NodeId loop) const {
    if (!loop || m_.KindOf(loop) != Kind::kFor) return false;
    NodeId items = m_.Child(loop, Field::k_right);
    return items && m_.Contains(items, {kA_named_modules, kA_modules, kA_children, kA_named_children, kA_parameters, kA_named_parameters}) && !m_.EnclosingLoop(loop);
  }

  bool AssignedIn(int function, Atom root) const {
    NodeId body = m_.functions()[function].body;
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left);
      if (m_.Inside(id, body) && left && m_.KindOf(left) == Kind::kIdentifier && m_[left].atom == root) return true;
    }
    return false;
  }

  const Scope& scope_;
  const Module& m_;
  const Flow& flow_;
  Reporter& report_;
  std::unordered_set<NodeId> seen_;
};

}  // namespace

void CheckHooks(const Scope& scope, Reporter& report) { Rule109(scope, report).Run(); }

}  // namespace lowtide::lint
