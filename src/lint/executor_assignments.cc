#include "lint/executor_values.h"

// What an assignment, a loop that cleans, or a backward() makes of names and of the containers that hold them.
namespace lowtide::lint {

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
      SetParts(path, kept);
      break;
    }
  }
}

// A container made anew: what was known of its entries is so no more.
void Executor::SetParts(Atom path, const Value& value) {
  auto found = parts_.find(path);
  if (!path || found == parts_.end()) return;
  Value part = value;
  part.flags &= ~(kContainer | kLoader | kInstance | kModel);
  for (Atom entry : found->second) {
    if (Known(entry)) Set(entry, part);
  }
}

// `for key, value in losses.items(): losses[key] = value.item()`: afterwards nothing in it holds a graph.
void Executor::CleanedByLoop(NodeId loop) {
  NodeId right = m_.Child(loop, Field::k_right), body = m_.Child(loop, Field::k_body);
  if (!right || !body) return;
  NodeId items = m_.FindCall(right, {kA_items, kA_keys});
  Atom path = m_.Path(items ? m_.Receiver(items) : right);
  if (!path) return;
  for (NodeId statement = m_.First(body); statement; statement = m_.Next(statement)) {
    NodeId assignment = m_.KindOf(statement) == Kind::kExpressionStatement ? m_.First(statement) : 0;
    if (!assignment || m_.KindOf(assignment) != Kind::kAssignment) continue;
    NodeId left = m_.Child(assignment, Field::k_left), value = m_.Child(assignment, Field::k_right);
    if (!left || !value || m_.KindOf(left) != Kind::kSubscript || m_.Path(left) || m_.Path(m_.Child(left, Field::k_value)) != path) continue;
    const Value& given = flow_.values_[value];
    if (given.attached() || given.params || !(given.flags & (kNumber | kTensor))) continue;
    Set(path, Value{kContainer, 0, 0});
    SetParts(path, Value{kNumber, 0, 0});
    return;
  }
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

}  // namespace lowtide::lint
