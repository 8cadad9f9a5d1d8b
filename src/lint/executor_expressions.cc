#include "lint/executor_values.h"

// Expressions other than calls.
namespace lowtide::lint {

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

}  // namespace lowtide::lint
