// What comes and goes beside states and activations: gathered weights, gradient buckets, casts, libraries' workspaces.
#include <algorithm>

#include "plan/terms.h"

namespace lowtide::plan {
namespace {

constexpr double kMiB = 1 << 20;

// FSDP and ZeRO-3: the layer at work and the one fetched ahead; embedding and head stay gathered (FSDP2's root group).
void AddGathered(const Context& context, std::vector<Term>& terms) {
  const Stage& stage = context.stage;
  const StateBytes& per = context.per;
  const double held = context.trained_share > 0 ? per.compute : context.frozen_bytes;
  const double layer = stage.layer + stage.layer_experts;  // experts of one expert-parallel GPU
  const double ends = stage.embedding + stage.head;
  const bool stays = context.setup.pipeline > 1 && context.setup.accumulate > 1 && context.setup.torch_sharded();
  if (stays) {
    const double weights = per.compute * stage.all(), gradients = per.reduce * stage.all();
    terms.push_back({"gathered", {"stage's weights, gathered", "聚集后的本级权重"},
                     {"the whole stage in compute precision while its micro batches pass", "微批通过期间整级权重保持计算精度的完整副本"},
                     "PyTorch FSDP2 under a pipeline schedule", {weights, weights, weights, 0, 0}});
    terms.push_back({"gathered gradients", {"stage's gradients, not yet reduced", "尚未归约的本级梯度"},
                     {"the whole stage in reduce precision until the last micro batch", "到最后一个微批为止，整级梯度保持归约精度"},
                     "PyTorch FSDP2 under a pipeline schedule", {gradients, gradients, gradients, 0, 0}});
    return;
  }
  const double weights = held * (std::min(2.0, stage.layers) * layer + ends);
  const double trained = context.trained_share > 0 ? 1 : 0;
  const double at_loss = trained * per.compute * stage.head, in_backward = trained * (per.compute * stage.head + per.reduce * layer);
  const double at_end = trained * std::max(per.compute * ends + per.reduce * layer, per.reduce * ends);
  terms.push_back({"gathered", {"gathered weights", "聚集后的权重"},
                   {"two layers, embedding and head in compute precision", "两层、词嵌入和输出层，计算精度"},
                   "PyTorch FSDP2 (arXiv 2304.11277); ZeRO-3 prefetch", {weights, weights, weights, 0, 0}});
  terms.push_back({"gathered gradients", {"gradients before the reduce-scatter", "归约前的梯度"},
                   {"one layer in reduce precision, embedding and head", "一层（归约精度）以及词嵌入和输出层"},
                   "PyTorch FSDP2 (arXiv 2304.11277)", {at_loss, in_backward, at_end, 0, 0}});
}

void AddBuckets(const Context& context, std::vector<Term>& terms) {
  const Setup& setup = context.setup;
  const double h = static_cast<double>(context.shape.hidden);
  if (setup.strategy == Strategy::kDdp && setup.data() > 1) {
    const double bytes = context.per.gradient * (context.trained_share * context.stage.all() + context.stage.lora);
    terms.push_back({"buckets", {"DDP's gradient buckets", "DDP 的梯度桶"},
                     {"a second copy of the gradients, unless gradient_as_bucket_view=True", "梯度的第二份副本（除非 gradient_as_bucket_view=True）"},
                     "torch.nn.parallel.DistributedDataParallel", {bytes, bytes, bytes, bytes, bytes}});
  }
  if (setup.strategy == Strategy::kZero1 || setup.strategy == Strategy::kZero2) {
    const double bytes = 2 * std::min(h * h, context.stage.all()) * context.per.weight;
    terms.push_back({"buckets", {"reduce buckets", "归约桶"}, {"two buckets of hidden x hidden numbers", "两个 隐藏维度² 大小的桶"},
                     "DeepSpeed's reduce_bucket_size \"auto\" (Transformers)", {0, bytes, bytes, 0, 0}});
  }
}

void AddCasts(const Context& context, std::vector<Term>& terms) {
  const Setup& setup = context.setup;
  const bool plain = setup.strategy == Strategy::kSingle || setup.strategy == Strategy::kDdp;
  if (!plain || setup.weights != Weights::kMixed) return;
  const double linear = context.count.linear / static_cast<double>(setup.tensor) * context.stage.layers;
  const double bytes = 2 * context.trained_share * (linear + (context.shape.has_head ? std::max(context.stage.head, context.shape.tied ? context.stage.embedding : 0.0) : 0));
  terms.push_back({"casts", {"16-bit copies of weights", "权重的 16 位副本"}, {"autocast keeps one of each matrix until the backward pass used it", "autocast 为每个矩阵保留一份，直到反向传播用完"},
                   "torch.autocast, weight cache", {bytes, bytes, 0, 0, 0}});
}

}  // namespace

void AddBuffers(const Context& context, std::vector<Term>& terms) {
  const Setup& setup = context.setup;
  if (setup.fully_sharded() && setup.shards() > 1) AddGathered(context, terms);
  else if (setup.offload_parameters) AddGathered(context, terms);
  AddBuckets(context, terms);
  AddCasts(context, terms);
  if (setup.step == StepKind::kForeach && !setup.offload_optimizer && setup.optimizer == Optimizer::kAdamW) {
    const double n = static_cast<double>(setup.shards());
    const double bytes = (context.per.optimizer / 2) * (context.trained_share * context.stage.all() + context.stage.lora) / n;
    terms.push_back({"step", {"temporaries of the optimizer's step", "优化器更新时的临时张量"}, {"foreach AdamW makes the square roots of all second moments at once", "foreach AdamW 一次计算所有二阶矩的平方根"},
                     "torch.optim.AdamW(foreach=True)", {0, 0, 0, bytes, 0}});
  }
  if (!setup.cuda) return;
  const double workspace = (setup.code == Code::kFused ? 64 : 32) * kMiB;
  terms.push_back({"workspaces", {"libraries' workspaces", "库的工作区"}, {"cuBLAS 32 MiB, with Transformer Engine 64 MiB", "cuBLAS 32 MiB，使用 Transformer Engine 时 64 MiB"},
                   "CUBLAS_WORKSPACE_CONFIG; Transformer Engine", {workspace, workspace, workspace, workspace, workspace}});
}

}  // namespace lowtide::plan
