#include "lint/rules.h"

// LT118: DistributedDataParallel around a model that is moved, changed, or on the wrong device afterwards.
namespace lowtide::lint {
namespace {

class Rule118 {
 public:
  Rule118(const Scope& scope, Reporter& report) : scope_(scope), m_(scope.module), report_(report) {}

  void Run() {
    for (NodeId call : m_.Nodes(Kind::kCall)) {
      Atom name = m_.CalleeName(call);
      if (!name) continue;
      bool wraps = name == kA_DistributedDataParallel;
      if (name == kA_DDP) wraps = true;
      if (!wraps || !m_.Argument(call, 0, kA_module)) continue;
      if (m_.KindOf(m_.Argument(call, 0, kA_module)) == Kind::kListSplat || IsTestFile(m_.path())) continue;
      Judge(call);
    }
  }

 private:
  // `.to(device)` with the same words stands before the wrap too: the later one moves nothing.
  bool MovedThereBefore(NodeId later, NodeId wrap) const {
    if (m_.CalleeName(later) != kA_to && m_.CalleeName(later) != kA_cuda) return false;
    for (NodeId before : m_.Calls({kA_to, kA_cuda})) {
      if (before != later && before < wrap && m_.FunctionOf(before) == m_.FunctionOf(wrap) && m_.CalleeName(before) == m_.CalleeName(later) &&
          m_.Text(m_.Child(before, Field::k_arguments)) == m_.Text(m_.Child(later, Field::k_arguments))) {
        return true;
      }
    }
    return false;
  }

  // DDP(model).to(device): a move of what was just wrapped.
  NodeId MovedAtOnce(NodeId call) const {
    NodeId attribute = m_[call].parent, moved = m_[attribute].parent;
    const bool chained = m_.KindOf(attribute) == Kind::kAttribute && m_.KindOf(moved) == Kind::kCall && m_.Receiver(moved) == call;
    if (!chained || (m_.CalleeName(moved) != kA_to && m_.CalleeName(moved) != kA_cuda)) return 0;
    for (NodeId inner : m_.Calls({kA_to, kA_cuda})) {  // DDP(model.to(device)).to(device) moves nothing
      if (inner != moved && m_.Inside(inner, call)) return 0;
    }
    return MovedThereBefore(moved, call) ? 0 : moved;
  }

  void Judge(NodeId call) {
    if (MovedAtOnce(call)) {
      return Report(call, {"the model is moved by what follows the wrap: DDP has bound its buckets to the old device",
                           "模型在包装之后才被移动：DDP 的桶已绑定到旧设备"}, {"move the model to its device, then wrap", "先把模型移到设备上，再包装"});
    }
    NodeId assignment = m_.Ancestor(call, {Kind::kAssignment});
    Atom wrapped = assignment ? m_.Path(m_.Child(assignment, Field::k_left)) : static_cast<Atom>(kNoAtom);
    int function = m_.FunctionOf(call);
    NodeId body = function > 0 ? m_.functions()[function].body : 0;
    for (NodeId later : m_.Calls({kA_to, kA_cuda, kA_set_device, kA_convert_sync_batchnorm})) {
      if (MovedThereBefore(later, call)) continue;
      if (later < m_[call].last || !m_.Inside(later, body) || m_.FunctionOf(later) != function) continue;
      // On every path after the wrap: its own block, or one around it; not the other branch of its `if`.
      if (!Follows(later, call)) continue;
      Atom name = m_.CalleeName(later);
      if (name == kA_set_device) {
        return Report(call, {"the model is wrapped before torch.cuda.set_device() at line " + Line(later) + ": every rank's replica and NCCL buffers land on GPU 0",
               "模型在第 " + Line(later) + " 行的 torch.cuda.set_device() 之前就被包装：各进程的副本和 NCCL 缓冲区都落在 GPU 0"},
                      {"call set_device(local_rank) first, then model.to(device), then wrap",
               "先 set_device(local_rank)，再 model.to(device)，最后包装"});
      }
      if (name == kA_convert_sync_batchnorm) {
        NodeId converted = m_.Argument(later, 0);
        if (converted && wrapped && m_.Path(converted) == wrapped) {
          return Report(call, {"SyncBatchNorm conversion at line " + Line(later) + " comes after the wrap: the reducer watches the old modules",
               "第 " + Line(later) + " 行的 SyncBatchNorm 转换在包装之后：归约器仍监视旧模块"}, {"convert first, then wrap",
               "先转换，再包装"});
        }
        continue;
      }
      NodeId receiver = m_.Receiver(later);
      if (wrapped && receiver && m_.Path(receiver) == wrapped && !ReassignedBetween(wrapped, call, later) && !TrainedBetween(call, later)) {
        return Report(call, {"the wrapped model is moved at line " + Line(later) + ": DDP has bound its buckets to the old device",
               "包装后的模型在第 " + Line(later) + " 行被移动：DDP 的桶已绑定到旧设备"}, {"move the model to its device, then wrap",
               "先把模型移到设备上，再包装"});
      }
    }
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {  // model.module.fc = nn.Linear(...) after the wrap
      NodeId left = m_.Child(id, Field::k_left), right = m_.Child(id, Field::k_right);
      if (id < m_[call].last || !m_.Inside(id, body) || !left || !right || m_.KindOf(left) != Kind::kAttribute || !wrapped) continue;
      NodeId object = m_.Child(left, Field::k_object);
      bool inner = m_.KindOf(object) == Kind::kAttribute && m_.LastName(object) == kA_module && m_.Path(m_.Child(object, Field::k_object)) == wrapped;
      if (!inner || m_.KindOf(right) != Kind::kCall || !(scope_.flow.Of(right).flags & kModel) || !Follows(id, call)) continue;
      return Report(call, {"a submodule is replaced at line " + Line(id) + ", after the wrap: DDP does not reduce the new parameters' gradients",
               "子模块在包装之后（第 " + Line(id) + " 行）被替换：DDP 不会归约新参数的梯度"}, {"change the model first, then wrap",
               "先修改模型，再包装"});
    }
    CheckDeviceNeverSet(call);
  }

  // device_ids of a local rank, and nothing in the project selects that GPU.
  void CheckDeviceNeverSet(NodeId call) {
    NodeId ids = m_.Keyword(call, kA_device_ids);
    if (!ids || m_.KindOf(ids) != Kind::kList || !m_.First(ids)) return;
    NodeId id = m_.First(ids);
    if (!HasHint(m_.Text(id), {"rank", "gpu", "device"}) || m_.Has(kA_set_device)) return;
    std::string_view text = m_.text();
    for (std::string_view sign : {"\"cuda:", "'cuda:", "CUDA_VISIBLE_DEVICES", "Accelerator(", "idist.", "hvd."}) {
      if (text.find(sign) != std::string_view::npos) return;
    }
    // .to(rank), .cuda(gpu), torch.device("cuda", rank): the device is named.
    for (NodeId other : m_.Calls({kA_to, kA_cuda, kA_device})) {
      NodeId where = m_.Argument(other, 0, kA_device);
      if (where && m_.Text(where) == m_.Text(id)) return;
      NodeId second = m_.Argument(other, 1);
      if (second && HasHint(m_.Text(second), {"rank", "gpu"})) return;
      if (where && HasHint(m_.Text(where), {"rank", "gpu"})) return;
      if (where && m_.CalleeName(other) == kA_device && m_.KindOf(where) != Kind::kString) return;
    }
    if (!HasHint(m_.Text(id), {"rank"})) return;
    Pending& pending = report_.Add(call, Severity::kWarning,
                {"device_ids names this rank's GPU, but nothing calls torch.cuda.set_device(): whatever says just \"cuda\" lands on GPU 0, from every rank",
               "device_ids 指定了本进程的 GPU，但没有调用 torch.cuda.set_device()：凡是只写 \"cuda\" 的张量，所有进程都会放到 GPU 0"},
                {"call torch.cuda.set_device(local_rank) before the first CUDA call",
               "在第一次 CUDA 调用之前执行 torch.cuda.set_device(local_rank)"});
    pending.Needs({Ask::kNoProjectCall, true, 255, 0, HashName("set_device"), 0});
  }

  // After training, on the way to the test: it comes to the device where it is.
  bool TrainedBetween(NodeId call, NodeId later) const {
    for (NodeId id = m_[call].last; id < later; ++id) {
      bool loop = m_.KindOf(id) == Kind::kFor || m_.KindOf(id) == Kind::kWhile;
      if (loop && m_[id].last <= later && IsTrainingLoop(m_, scope_.flow, id)) return true;
    }
    return false;
  }

  bool ReassignedBetween(Atom path, NodeId call, NodeId later) const {
    for (NodeId id : m_.Nodes(Kind::kAssignment)) {
      if (id > m_[call].last && id < later && !m_.Inside(later, id) && m_.Path(m_.Child(id, Field::k_left)) == path) return true;
    }
    return false;
  }

  bool Follows(NodeId later, NodeId call) const {
    // The statement of `later`, lifted to a block that also holds (the statement around) `call`.
    for (NodeId up = later; up; up = m_[up].parent) {
      if (m_.Inside(call, up)) {
        // Both in `up`; not in different branches of the same `if`.
        Kind kind = m_.KindOf(up);
        return kind == Kind::kBlock || kind == Kind::kModule;
      }
      Kind kind = m_.KindOf(up);
      if (kind == Kind::kFunction || kind == Kind::kLambda) return false;
      if ((kind == Kind::kIf || kind == Kind::kFor || kind == Kind::kWhile) && m_.CalleeName(later) != kA_set_device) return false;
    }
    return true;
  }

  std::string Line(NodeId id) const { return std::to_string(m_.Line(m_[id].start)); }

  void Report(NodeId call, Said message, Said help) { report_.Add(call, Severity::kError, std::move(message), std::move(help)); }

  const Scope& scope_;
  const Module& m_;
  Reporter& report_;
};

}  // namespace

void CheckDdpOrder(const Scope& scope, Reporter& report) { Rule118(scope, report).Run(); }

}  // namespace lowtide::lint
