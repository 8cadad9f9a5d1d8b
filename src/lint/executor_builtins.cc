#include "lint/executor_values.h"

#include <string>

// Calls by name: Python's built-ins, methods of tensors and containers, functions of torch.
namespace lowtide::lint {
namespace {

// Which rows of `names` say what a call by that name does.
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
                   kA_gather_for_metrics, kA_new_zeros, kA_new_tensor, kA_new_ones, kA_new_full, kA_new_empty, kA_get_rng_state, kA_clip_grad_norm_, kA_clip_grad_norm});
}

bool MakesFreshTensor(Atom name) {
  return In(name, {kA_zeros, kA_ones, kA_rand, kA_randn, kA_randint, kA_randperm, kA_arange, kA_tensor, kA_full, kA_eye, kA_empty, kA_linspace,
                   kA_zeros_like, kA_ones_like, kA_rand_like, kA_randn_like, kA_full_like, kA_empty_like, kA_from_numpy, kA_Tensor,
                   kA_FloatTensor, kA_LongTensor, kA_logspace, kA_tril_indices, kA_triu_indices, kA_normal, kA_bernoulli});
}

}  // namespace

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

}  // namespace lowtide::lint
