#include "lint/rules.h"

// LT124: what torch.load returned stays alive through training.
namespace lowtide::lint {
namespace {

class Rule124 {
 public:
  Rule124(const Scope& scope, Reporter& report) : scope_(scope), m_(scope.module), flow_(scope.flow), report_(report) {}

  void Run() {
    if (!m_.Has(kA_load_state_dict) || IsTestFile(m_.path())) return;
    for (NodeId call : m_.Calls(kA_load)) {
      if (!m_.IsTorch(m_.Callee(call)) && m_.LastName(m_.Receiver(call)) != kA_torch) continue;
      if (m_.Receiver(call) && m_.LastName(m_.Receiver(call)) != kA_torch) continue;
      NodeId assignment = m_[call].parent;
      if (m_.KindOf(assignment) != Kind::kAssignment || ForTestOnly(call)) continue;
      Judge(call, assignment);
    }
  }

 private:
  // `if args.phase != "train": checkpoint = ...`, `if args.evaluate:`: what trains is not reached from here.
  bool ForTestOnly(NodeId call) const {
    for (NodeId guard = GuardAround(m_, call, 0); guard; guard = GuardAround(m_, guard, 0)) {
      NodeId condition = m_.Child(guard, Field::k_condition);
      std::string_view text = condition ? m_.Text(condition) : std::string_view();
      bool not_training = HasHint(text, {"train"}) && (text.find("!=") != text.npos || text.find("not ") != text.npos);
      if (not_training || HasHint(text, {"evaluate", "eval_only", "test_only", "inference"})) return true;
    }
    return false;
  }

  void Judge(NodeId call, NodeId assignment) {
    NodeId left = m_.Child(assignment, Field::k_left);
    if (!left || m_.KindOf(left) != Kind::kIdentifier) return;
    int function = m_.FunctionOf(call);
    NodeId loop = TrainingAfter(function, m_[call].last);
    if (!loop || !Restored(function, m_[left].atom, call)) return;
    bool host = m_.Keyword(call, kA_map_location) && m_.Text(m_.Keyword(call, kA_map_location)).find("cpu") != std::string_view::npos;
    if (!Released(function, m_[left].atom, call, loop)) {
      return Report(assignment, call, m_.Text(left), host);
    }
    // The container was let go, but a part of it has a name of its own.
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId name = m_.Child(id, Field::k_left), value = m_.Child(id, Field::k_right);
      if (!name || !value || id < assignment || id > loop || m_.FunctionOf(id) != function || m_.KindOf(name) != Kind::kIdentifier) continue;
      if (m_.KindOf(value) != Kind::kSubscript || m_.RootName(value) != m_[left].atom) continue;
      if (!HasHint(m_.Text(value), {"model", "state", "net", "weight"})) continue;
      if (Restored(function, m_[name].atom, id) && !Released(function, m_[name].atom, id, loop)) Report(id, id, m_.Text(name), host);
    }
  }

  // A training loop of this function after the load; one inside a function that this one calls counts when it is called.
  NodeId TrainingAfter(int function, NodeId after) const {
    NodeId body = function > 0 ? m_.functions()[function].body : 0;
    NodeId first = 0;
    for (Kind kind : {Kind::kFor, Kind::kWhile}) {
      for (NodeId loop : m_.Nodes(kind)) {
        if (loop < after || (first && loop > first) || !m_.Inside(loop, body) || m_.FunctionOf(loop) != function) continue;
        const bool trains = IsTrainingLoop(m_, flow_, loop) && CallsStep(m_, flow_, m_.Child(loop, Field::k_body));
        if (trains || CallsTrainer(loop)) first = loop;
      }
    }
    return first;
  }

  // train(loader, model, optimizer, epoch) of another file.
  bool CallsTrainer(NodeId loop) const {
    for (NodeId call : m_.Nodes(Kind::kCall)) {
      if (!m_.Inside(call, loop) || !m_.CalleeName(call) || !m_.Name(m_.CalleeName(call)).starts_with("train")) continue;
      NodeId list = m_.Child(call, Field::k_arguments);
      for (NodeId argument : list ? m_.Children(list) : std::vector<NodeId>()) {
        if (m_.LastName(argument) && HasHint(m_.Name(m_.LastName(argument)), {"optim"})) return true;
      }
    }
    return false;
  }

  // Used for load_state_dict: it is a checkpoint of weights.
  bool Restored(int function, Atom name, NodeId after) const {
    for (NodeId call : m_.Calls(kA_load_state_dict)) {
      if (call < after || m_.FunctionOf(call) != function) continue;
      // A loader's or a sampler's position is no copy of weights.
      if (NodeId owner = m_.Receiver(call); owner && HasHint(m_.Name(m_.LastName(owner)), {"loader", "dataset", "sampler", "sched", "tracker", "logger"})) continue;
      NodeId list = m_.Child(call, Field::k_arguments);
      if (list && m_.Contains(list, {name})) return true;
      // through one more name
      NodeId argument = m_.Argument(call, 0);
      if (!argument || m_.KindOf(argument) != Kind::kIdentifier) continue;
      for (NodeId id : m_.Nodes(Kind::kAssignment)) {
        NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
        if (left && right && m_.Path(left) == m_[argument].atom && m_.Contains(right, {name})) return true;
      }
    }
    return false;
  }

  bool Released(int function, Atom name, NodeId after, NodeId loop) const {
    for (NodeId id : m_.Nodes(Kind::kDelete)) {
      if (id > after && m_.FunctionOf(id) == function && m_.Contains(id, {name})) return true;
    }
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (id > after && id < loop && left && right && m_.FunctionOf(id) == function && m_.Path(left) == name && !m_.Contains(right, {name})) return true;
    }
    // Read inside the loop: kept on purpose. Set there, it is another thing by the same name.
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      if (m_.Inside(id, loop) && m_.Path(m_.Child(id, Field::k_left)) == name) return false;
    }
    for (NodeId id = loop; id < m_[loop].last; ++id) {
      bool read = m_.KindOf(id) == Kind::kIdentifier && m_[id].atom == name && m_[id].field != Field::k_attribute && m_[id].field != Field::k_name;
      if (read) return true;
    }
    return false;
  }

  void Report(NodeId at, NodeId call, std::string_view name, bool host) {
    Pending& pending = report_.Add(at, host ? Severity::kNote : Severity::kWarning,
                                   {"`" + std::string(name) + "` holds a second copy of " + (HasHint(name, {"optim", "opt_"}) ? "the optimizer's state" : "the weights") + (host ? " in host memory" : "") + " through all of training",
               "`" + std::string(name) + "` 在整个训练期间" + (host ? "在主机内存中" : "") + (HasHint(name, {"optim", "opt_"}) ? "持有第二份优化器状态" : "持有第二份权重")},
                                   {"`del " + std::string(name) + "` after load_state_dict(), or load inside a function; map_location=\"cpu\" keeps it off the GPU",
               "在 load_state_dict() 之后 `del " + std::string(name) + "`，或在函数内加载；map_location=\"cpu\" 可避免占用 GPU"});
    (void)pending;
    (void)call;
  }

  const Scope& scope_;
  const Module& m_;
  const Flow& flow_;
  Reporter& report_;
};

}  // namespace

void CheckStateDictKept(const Scope& scope, Reporter& report) { Rule124(scope, report).Run(); }

}  // namespace lowtide::lint
