#include "lint/facts.h"

#include <algorithm>

#include "lint/context.h"

namespace lowtide::lint {
namespace {

uint64_t StemOf(std::string_view path) {
  if (path.ends_with("/__init__.py")) path.remove_suffix(12);
  size_t slash = path.rfind('/');
  if (slash != std::string_view::npos) path.remove_prefix(slash + 1);
  size_t dot = path.rfind('.');
  return HashName(dot == std::string_view::npos ? path : path.substr(0, dot));
}

class Summary {
 public:
  Summary(const Module& module, const Flow& flow) : m_(module), flow_(flow) {}

  ModuleFacts::Data Run() {
    data_.path = m_.path();
    data_.stem = StemOf(m_.path());
    for (size_t f = 0; f < m_.functions().size(); ++f) AddFunction(static_cast<int>(f));
    for (const ClassInfo& cls : m_.classes()) {
      ClassFacts made{Hash(cls.name), {}};
      for (Atom base : cls.bases) made.bases.push_back(Hash(base));
      data_.classes.push_back(std::move(made));
    }
    AddCalls();
    AddKept();
    AddLoaders();
    for (const auto& [bound, target] : m_.imports()) {
      data_.imports.push_back(Hash(bound));
      for (size_t at = 0; at <= target.size();) {
        size_t dot = std::min(target.find('.', at), target.size());
        if (dot > at) data_.imports.push_back(HashName(std::string_view(target).substr(at, dot - at)));
        at = dot + 1;
      }
    }
    std::sort(data_.imports.begin(), data_.imports.end());
    data_.imports.erase(std::unique(data_.imports.begin(), data_.imports.end()), data_.imports.end());
    return std::move(data_);
  }

 private:
  uint64_t Hash(Atom atom) const { return atom ? HashName(m_.Name(atom)) : 0; }

  void AddFunction(int f) {
    const FunctionInfo& info = m_.functions()[f];
    const FunctionFlow& flow = flow_.Function(f);
    FunctionFacts made;
    made.name = Hash(info.name);
    made.cls = info.owner >= 0 ? Hash(m_.classes()[info.owner].name) : 0;
    made.parameters = static_cast<uint8_t>(std::min<size_t>(info.parameters.size(), 255));
    if (info.parent != 0) made.flags |= kIsNested;
    if (info.node && flow_.NoGradAt(info.body ? info.body : info.node)) made.flags |= kUnderNoGrad;
    if (info.node && (m_.Has(kA_no_grad) || m_.Has(kA_inference_mode) || m_.Has(kA_set_grad_enabled)) && flow_.SwitchesGradOff(m_.Child(info.node, Field::k_name))) {
      made.flags |= kProvidesNoGrad;
    }
    for (NodeId decorator : info.decorators) {
      NodeId name = m_.KindOf(decorator) == Kind::kCall ? m_.Callee(decorator) : decorator;
      if (m_.LastName(name)) made.decorators.push_back(Hash(m_.LastName(name)));
    }
    made.returns_tuple = flow.returns_tuple;
    for (const Value& value : flow.returns) {
      ReturnFacts facts;
      facts.flags = value.flags;
      facts.params = value.params;
      if (value.dep) {
        const Dep& dep = flow_.DepOf(value);
        facts.dep = Hash(dep.name);
        facts.dep_class = Hash(dep.cls);
        facts.element = dep.element;
      }
      made.returns.push_back(facts);
    }
    data_.functions.push_back(std::move(made));
  }

  void AddCalls() {
    for (NodeId call : m_.Nodes(Kind::kCall)) {
      Atom name = m_.CalleeName(call);
      if (!name) continue;
      int f = m_.FunctionOf(call);
      FunctionFacts& function = data_.functions[f];
      switch (name) {
        case kA_zero_grad: function.flags |= kCallsZeroGrad; break;
        case kA_set_epoch: function.flags |= kCallsSetEpoch; break;
        case kA_step: if (IsOptimizerStep(m_, call)) function.flags |= kCallsOptimizerStep; break;
        case kA_backward:
        case kA_manual_backward: if (IsBackwardCall(m_, call)) function.flags |= kCallsBackwardFlag; break;
        case kA_clip_grad_norm_:
        case kA_clip_grad_value_:
        case kA_clip_grad_norm: function.flags |= kClipsGradients; break;
        default: break;
      }
      if (m_.IsTorch(m_.Callee(call)) && name < kKnownAtoms && name != kA_set_device) continue;
      uint8_t flags = 0;
      if (m_.Receiver(call)) flags |= kCallMethod;
      if (flow_.NoGradAt(call)) flags |= kCallNoGrad;
      bool asked = name >= kKnownAtoms ? HasHint(m_.Name(name), {"save", "checkpoint", "log", "train", "print", "write", "export", "run", "main"}) : name == kA_save;
      if (asked && has_rank_ && RankGuarded(m_, call)) flags |= kCallRankGuarded;
      data_.calls.push_back({Hash(name), static_cast<uint32_t>(f), flags});
    }
    for (NodeId call : m_.Calls({kA_grad, kA_jacobian, kA_hessian})) {
      int cls = m_.ClassOf(call), f = m_.FunctionOf(call);
      bool autograd = m_.LastName(m_.Receiver(call)) == kA_autograd || m_.IsTorch(m_.Callee(call));
      if (!autograd || cls < 0 || !m_.IsNnModule(cls) || HasHint(m_.Name(m_.classes()[cls].name), {"loss", "penalty", "trainer", "gan"})) continue;
      if (HasHint(m_.Name(m_.functions()[f].name), {"penalty", "loss", "regular", "step"})) continue;
      data_.calls.push_back({HashName(kModuleDifferentiates), static_cast<uint32_t>(f), 0});
    }
    // Setting .grad to None, or a loop over parameters that does, clears too.
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left);
      if (left && m_.KindOf(left) == Kind::kAttribute && m_.LastName(left) == kA_grad) {
        data_.functions[m_.FunctionOf(id)].flags |= kCallsZeroGrad;
      }
    }
  }

  // Which parameters a method adds to its object: `self.total += value`, `self.values.append(value)`.
  void AddKept() {
    auto keep = [&](NodeId at, const Value& value, NodeId holder, bool adds) {
      int f = m_.FunctionOf(at);
      if (f == 0 || !value.params || m_.RootName(holder) != kA_self) return;
      FunctionFacts& facts = data_.functions[f];
      (adds ? facts.keeps : facts.stores) |= value.params;
    };
    for (NodeId id : m_.Nodes(Kind::kAugmentedAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (left && right && !flow_.NoGradAt(id)) keep(id, flow_.Of(right), left, true);
    }
    for (KnownAtom name : {kA_append, kA_extend, kA_appendleft}) {
      for (NodeId call : m_.Calls(name)) {
        if (NodeId argument = m_.Argument(call, 0)) keep(call, flow_.Of(argument), m_.Receiver(call), true);
      }
    }
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (!left || !right || m_.KindOf(left) == Kind::kIdentifier) continue;
      bool adds = m_.KindOf(right) != Kind::kIdentifier && m_.HasPath(right, m_.Path(left));
      keep(id, flow_.Of(right), left, adds);
    }
  }

  // The class of the dataset that `argument` of a loader denotes: by constructor, or through one assignment.
  uint64_t DatasetClass(NodeId argument, int hops = 0) const {
    if (!argument || hops > 3) return 0;
    if (m_.KindOf(argument) == Kind::kCall) return Hash(m_.CalleeName(argument));
    if (Atom cls = flow_.InstanceClass(argument)) return Hash(cls);
    Atom path = m_.Path(argument);
    if (!path) return 0;
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (left && right && m_.Path(left) == path && m_.KindOf(right) == Kind::kCall) return DatasetClass(right, hops + 1);
    }
    return 0;
  }

  void AddLoaders() {
    for (NodeId call : m_.Calls(kA_DataLoader)) {
      LoaderFacts loader;
      loader.dataset = DatasetClass(m_.Argument(call, 0, kA_dataset));
      NodeId workers = m_.Argument(call, 5, kA_num_workers);
      bool splat = false;
      if (NodeId list = m_.Child(call, Field::k_arguments)) {
        for (NodeId argument : m_.Children(list)) splat |= m_.KindOf(argument) == Kind::kDictSplat;
      }
      if (workers) loader.workers = m_.KindOf(workers) != Kind::kInteger ? Workers::kUnknown : m_.Text(workers) == "0" ? Workers::kNone : Workers::kSome;
      else loader.workers = splat ? Workers::kUnknown : Workers::kNone;
      data_.loaders.push_back(loader);
    }
  }

  const Module& m_;
  const Flow& flow_;
  ModuleFacts::Data data_;
  bool has_rank_ = m_.text().find("rank") != std::string_view::npos || m_.text().find("main_process") != std::string_view::npos ||
                   m_.text().find("master") != std::string_view::npos || m_.text().find("gpu_id") != std::string_view::npos ||
                   m_.text().find("primary") != std::string_view::npos || m_.text().find("is_main") != std::string_view::npos;
};

}  // namespace

ModuleFacts::Data Summarize(const Module& module, const Flow& flow) { return Summary(module, flow).Run(); }

}  // namespace lowtide::lint
