#include "lint/rules.h"

// LT137: an NCCL process group whose ranks all take GPU 0.
namespace lowtide::lint {
namespace {

bool AsksForNccl(const Module& m, NodeId call) {
  NodeId list = m.Child(call, Field::k_arguments);
  for (NodeId argument = list ? m.First(list) : 0; argument; argument = m.Next(argument)) {
    NodeId value = m.KindOf(argument) == Kind::kKeywordArgument ? m.Child(argument, Field::k_value) : argument;
    if (value && m.KindOf(value) == Kind::kString && Unquote(m.Text(value)) == "nccl") return true;
  }
  return false;
}

// Something in the file tells one rank's GPU from another's.
bool ChoosesDevice(const Module& m) {
  std::string_view text = m.text();
  for (std::string_view sign : {"set_device", "local_rank", "LOCAL_RANK", "localrank", "LOCALID", "CUDA_VISIBLE_DEVICES", "device_id", "cuda:", "cuda.device(",
                                "device_count", "Accelerator", "deepspeed", "horovod", "hvd.", "gpu_id", "args.gpu", "set_default_device"}) {
    if (text.find(sign) != text.npos) return true;
  }
  return false;
}

// .cuda(), .to("cuda"), torch.device("cuda"): the GPU that is current. 0 when some call names another.
NodeId TakesCurrentDevice(const Module& m) {
  NodeId found = 0;
  for (NodeId call : m.Calls({kA_cuda, kA_to, kA_device})) {
    NodeId where = m.Argument(call, 0, kA_device);
    bool plain = where && m.KindOf(where) == Kind::kString && Unquote(m.Text(where)) == "cuda";
    bool any_argument = m.Child(call, Field::k_arguments) && m.First(m.Child(call, Field::k_arguments));
    if (m.CalleeName(call) == kA_device) {
      if (plain && m.Argument(call, 1)) return 0;
      if (where && !plain && m.KindOf(where) != Kind::kConditional && m.KindOf(where) != Kind::kString) return 0;
    }
    if (plain || (m.CalleeName(call) == kA_cuda && m.Receiver(call) && !any_argument)) found = found ? found : call;
    else if (where && HasHint(m.Text(where), {"rank", "gpu"})) return 0;
  }
  return found;
}

}  // namespace

void CheckNcclDevice(const Scope& scope, Reporter& report) {
  const Module& m = scope.module;
  if (m.Calls(kA_init_process_group).empty() || IsTestFile(m.path()) || ChoosesDevice(m)) return;
  NodeId taken = TakesCurrentDevice(m);
  if (!taken || m.Calls({kA_DistributedDataParallel, kA_DDP}).empty()) return;
  for (NodeId call : m.Calls(kA_init_process_group)) {
    if (!AsksForNccl(m, call)) continue;
    std::string line = std::to_string(m.Line(m[taken].start));
    report
        .Add(call, Severity::kError,
             {"no rank chooses a GPU of its own: with NCCL all ranks of a machine take GPU 0 (line " + line + "), which fills its memory and fails as a duplicate GPU",
              "没有任何进程选择自己的 GPU：使用 NCCL 时同一台机器的所有进程都占用 GPU 0（第 " + line + " 行），既占满其显存，又会因 GPU 重复而失败"},
             {"call torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"])) before the first CUDA call",
              "在第一次 CUDA 调用之前执行 torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))"})
        .Needs({Ask::kNoProjectCall, true, 255, 0, HashName("set_device"), 0});
  }
}

}  // namespace lowtide::lint
