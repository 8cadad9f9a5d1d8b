#include "lint/executor_values.h"

#include <string>

// Calls: constructors, models and losses, functions of this file and of others.
namespace lowtide::lint {
namespace {

// nn.Sigmoid()(logits): what it returns has a graph only where its input has.
bool HasNoParameters(std::string_view cls) {
  return cls.ends_with("Loss") || HasHint(cls, {"sigmoid", "softmax", "softmin", "tanh", "softplus", "pool", "flatten", "dropout", "upsample", "identity",
                                               "similarity", "distance", "pad"}) ||
         cls == "ReLU" || cls == "GELU" || cls == "SiLU" || cls == "ELU" || cls == "LeakyReLU";
}

// evaluate_model, train_net: what is done with a model, not one.
bool IsDoneWithModels(std::string_view name) {
  return name.starts_with("eval") || name.starts_with("valid") || name.starts_with("run_") || name.starts_with("test_") || name.starts_with("train_") ||
         name.starts_with("predict_") || name.starts_with("infer") || name.starts_with("fit_") || name.starts_with("score_");
}

}  // namespace

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
      bool bare = (arguments.flags & kTensor) && !arguments.attached() && HasNoParameters(m_.Name(m_.CalleeName(callee)));
      if (!bare && function.flags & (kModel | kLossFn)) result.flags |= kGrad | (function.flags & kLossFn ? kLossNamed : 0);
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
  bool camel = !text.empty() && (text[0] >= 'A' && text[0] <= 'Z') && !(text.size() > 1 && text[1] == '_');  // S_model is a variable
  bool self_call = !receiver && name == kA_self;
  if (in_file < 0 && camel && !(function.flags & kInstance)) return Constructor(id, name);
  if (in_file < 0 && !receiver && m_.FindClass(name) >= 0) return Constructor(id, name);
  // create_model(...), get_network(...): makes a model, does not run one.
  bool builds = Hints(name) & kHintModel && !(function.flags & kInstance) && !Known(m_.Path(callee)) && IsBuilderName(text);
  if (builds && in_file < 0) return Value{kModel, 0, 0};
  // Text to numbers and back: model.tokenize(...), model.tok_decode(...).
  bool tokenizer = receiver && m_.LastName(receiver) && HasHint(m_.Name(m_.LastName(receiver)), {"tokenizer"}) && HasHint(text, {"decode"});
  if (in_file < 0 && (tokenizer || HasHint(text, {"tokeniz", "tok_"}))) return Value{kNumber, 0, 0};
  // Frozen or momentum copies give no graph of their own.
  Atom path = m_.Path(callee);
  bool frozen = (path && path_slots_.count(path) && frozen_[path_slots_[path]]) || (path < 0x80000000u && frozen_[path]) ||
                (Hints(name) & kHintFrozen);
  // from .utils import evaluate_model: a function that is given one.
  bool imported = !receiver && in_file < 0 && m_.imports().count(name) && IsDoneWithModels(text);
  bool is_model = (function.flags & kModel && !imported && !(function.flags & kLossFn)) || (self_call && m_.IsNnModule(m_.ClassOf(id))) ||
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
