#include <fmt/core.h>

#include "base/units.h"
#include "verdict/kinds/kinds.h"

namespace lowtide::verdict {
namespace {

uint64_t Count(double v) { return v > 0 ? static_cast<uint64_t>(v + 0.5) : 0; }

const char* Code(const Judgement& j) {
  if (!j.only_ranks.empty()) return "LT208";
  if (j.pool.starts_with("device-other")) return "LT207";
  return j.phase && *j.phase != series::Phase::kStep ? "LT206" : "LT201";
}

Text PhaseWords(const Judgement& j) {
  if (!j.phase) return {};
  switch (*j.phase) {
    case series::Phase::kValidation:
      return {", all of it in validation", ", 全部发生在验证阶段"};
    case series::Phase::kEpoch:
      return {", all of it at epoch boundaries", ", 全部发生在 epoch 交界处"};
    case series::Phase::kCheckpoint:
      return {", all of it when checkpoints are saved", ", 全部发生在保存检查点时"};
    default:
      return {};
  }
}

Text LeakReason(const Judgement& j) {
  Text pool = PoolWords(j), span = SpanWords(j), phase = PhaseWords(j);
  double rate = j.bytes_per_step.value_or(0);
  auto [low, high] = j.interval.value_or(std::pair{rate, rate});
  Text how = j.from_ledger
                 ? Text{"blocks born in old steps are still alive and none of them dies",
                        "早先各步分配的内存块一直存活, 没有释放"}
                 : Text{"its lower edge keeps rising, does not slow down and is above every earlier level",
                        "其下沿持续上升, 没有放缓, 且高于以往任何水平"};
  Text out;
  out.en = fmt::format("{} grows by {} ({} to {}){} since about step {}: {} ({}).", pool.en,
                       AmountPerStep(j, rate), AmountPerStep(j, low), AmountPerStep(j, high), phase.en,
                       FormatCount(Count(j.onset_step.value_or(j.first_step))), how.en, span.en);
  out.zh = fmt::format("{} 自第 {} 步左右起每步增长 {} ({} 到 {}){}: {} ({})。", pool.zh,
                       FormatCount(Count(j.onset_step.value_or(j.first_step))), Amount(j, rate),
                       Amount(j, low), Amount(j, high), phase.zh, how.zh, span.zh);
  if (j.steps_to_oom) {
    std::string time = j.seconds_to_oom ? fmt::format(" ({})", FormatDuration(*j.seconds_to_oom)) : "";
    out.en += fmt::format(" At this rate memory runs out in about {} steps{}.",
                          FormatCount(Count(*j.steps_to_oom)), time);
    out.zh += fmt::format(" 照此速度约 {} 步{} 后内存耗尽。", FormatCount(Count(*j.steps_to_oom)), time);
  }
  if (j.cache_at_least) {
    out.en += fmt::format(" Were it a cache that fills, it would hold more than {} when full.",
                          Amount(j, *j.cache_at_least));
    out.zh += fmt::format(" 若这是正在填充的缓存, 填满后将超过 {}。", Amount(j, *j.cache_at_least));
  }
  return out;
}

Text PoolHelp(const Judgement& j) {
  if (j.pool.starts_with("device-other"))
    return {
        "Look outside PyTorch's tensors: CUDA contexts and streams made in the loop, cuDNN or NCCL "
        "workspaces, custom "
        "extensions, other libraries on the same GPU.",
        "请检查 PyTorch 张量之外: 循环中新建的 CUDA 上下文或流, cuDNN/NCCL 工作区, 自定义扩展, 同一 GPU "
        "上的其他库。"};
  if (j.pool == "workers")
    return {
        "Look at what the Dataset or collate function keeps on `self` (caches, lists, open files); try "
        "num_workers=0 or "
        "persistent_workers=False to confirm.",
        "请检查 Dataset 或 collate 函数保存在 self 上的内容 (缓存, 列表, 打开的文件); 可用 num_workers=0 或 "
        "persistent_workers=False 验证。"};
  if (j.pool == "shm" || j.pool == "fds")
    return {"Batches received from workers are being kept: clone what you keep, and drop the batch itself.",
            "从子进程收到的批次被保留: 只保留克隆的数据, 释放批次本身。"};
  if (j.pool == "host" || j.pool == "heap")
    return {
        "Look for autograd graphs kept alive (a running loss summed without .item()), caches, figures never "
        "closed, and "
        "compiled functions made anew each step.",
        "请查找被保留的计算图 (累加 loss 而未用 .item()), 缓存, 未关闭的图表, 以及每步重新编译的函数。"};
  return {
      "Look for tensors kept across steps: losses or outputs appended without .detach() or .item(), hooks "
      "that store "
      "tensors, metrics that keep predictions.",
      "请查找跨步保留的张量: 未 .detach() 或 .item() 就追加的 loss 或输出, 保存张量的钩子, 保留预测的指标。"};
}

Text LeakHelp(const Judgement& j) {
  Text out = PoolHelp(j);
  if (j.phase == series::Phase::kValidation) {
    out.en = "Put @torch.no_grad() on the validation function and empty its lists at its start. " + out.en;
    out.zh = "在验证函数上加 @torch.no_grad(), 并在开始时清空其列表。" + out.zh;
  } else if (j.phase == series::Phase::kEpoch) {
    out.en =
        "Look at what is appended or rebuilt once an epoch (loaders, iterators, epoch outputs). " + out.en;
    out.zh = "检查每个 epoch 追加或重建的对象 (数据加载器, 迭代器, epoch 输出)。" + out.zh;
  } else if (j.phase == series::Phase::kCheckpoint) {
    out.en = "Free the state dict after saving it, and keep no copies of the model. " + out.en;
    out.zh = "保存后释放 state dict, 不要保留模型副本。" + out.zh;
  }
  if (!j.only_ranks.empty()) {
    std::string ranks;
    for (int r : j.only_ranks) ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
    out.en = fmt::format(
                 "Only rank {} leaks: look at code under `if rank == ...` and at the data this rank gets. ",
                 ranks) +
             out.en;
    out.zh =
        fmt::format("只有 rank {} 泄漏: 检查 `if rank == ...` 下的代码以及该 rank 的数据。", ranks) + out.zh;
  }
  if (!j.recorded) out.en += " `lowtide run` names the holder and the line.", out.zh += " `lowtide run` 会指出持有者和代码行。";
  out.en += " `lowtide lint` checks the source.";
  out.zh += " `lowtide lint` 检查源码。";
  return out;
}

}  // namespace

Words LeakWords(const Judgement& j) {
  return {Code(j), finding::Severity::kError, LeakReason(j), LeakHelp(j)};
}

}  // namespace lowtide::verdict
