// Weights, gradients and optimizer: ZeRO (arXiv 1910.02054, section 3.1 and figure 1) generalised to other precisions,
// optimizers, frozen weights and expert parallelism.
#include <algorithm>

#include "plan/terms.h"

namespace lowtide::plan {
namespace {

constexpr const char* kZero = "ZeRO, arXiv 1910.02054, figure 1";

Bytes Always(double bytes) { return {bytes, bytes, bytes, bytes, bytes}; }

// Bytes of `per` for each trained number of the stage, split over `n` GPUs. Experts are repeated over fewer GPUs.
double Split(const Context& context, double per, double n) {
  const Stage& stage = context.stage;
  const double expert_n = std::max(1.0, n / static_cast<double>(context.setup.expert));
  const double own = context.trained_share * (stage.dense() / n + stage.experts() / expert_n);
  return per * (own + stage.lora / n);
}

double Frozen(const Context& context, double n) {
  const Stage& stage = context.stage;
  const double expert_n = std::max(1.0, n / static_cast<double>(context.setup.expert));
  return context.frozen_bytes * (1 - context.trained_share) * (stage.dense() / n + stage.experts() / expert_n);
}

// Gradients that are made anew in each backward pass are not there when the loss is computed.
bool GradientsStay(const Setup& setup) {
  return setup.strategy == Strategy::kMegatron || setup.strategy == Strategy::kZero3;
}

void AddGradients(const Context& context, double shards, std::vector<Term>& terms) {
  const Setup& setup = context.setup;
  const bool whole = setup.strategy == Strategy::kSingle || setup.strategy == Strategy::kDdp ||
                     setup.strategy == Strategy::kZero1 || setup.strategy == Strategy::kMegatron;
  if (setup.optimizer_in_backward) {
    const Stage& stage = context.stage;
    const double one = context.per.gradient * std::max(stage.layer + stage.layer_experts, std::max(stage.embedding, stage.head));
    terms.push_back({"gradients", {"gradients of one layer", "一层的梯度"},
                     {"freed at once, since the optimizer steps inside the backward pass: the largest layer", "优化器在反向传播中更新，梯度立即释放：最大的一层"},
                     "torch.optim, step in backward (register_post_accumulate_grad_hook)", {0, one, one, 0, 0}});
    return;
  }
  const bool moved = setup.offload_optimizer && !whole;
  const double bytes = moved ? 0 : Split(context, context.per.gradient, whole ? 1 : shards);
  const double early = GradientsStay(setup) || setup.accumulate > 1 ? bytes : 0;
  const double between = GradientsStay(setup) ? bytes : 0;
  terms.push_back({"gradients", {"gradients", "梯度"},
                   {moved ? "kept on the CPU with the optimizer" : "trained parameters x bytes of a gradient, split as the strategy says",
                    moved ? "与优化器一起放在 CPU 上" : "可训练参数 × 每个梯度的字节数，按策略切分"},
                   setup.strategy == Strategy::kMegatron ? "Megatron-LM: fp32 main gradients" : kZero, {early, early, bytes, bytes, between}});
}

void AddOptimizer(const Context& context, double shards, std::vector<Term>& terms) {
  const Setup& setup = context.setup;
  const double n = setup.strategy == Strategy::kSingle || setup.strategy == Strategy::kDdp ? 1 : shards;
  const double on = setup.offload_optimizer ? 0 : 1;
  if (context.per.master > 0) {
    terms.push_back({"master weights", {"fp32 copy of the weights", "权重的 fp32 副本"},
                     {"trained parameters x 4 bytes / shards", "可训练参数 × 4 字节 / 分片数"}, kZero, Always(on * Split(context, context.per.master, n))});
  }
  terms.push_back({"optimizer", {"optimizer states", "优化器状态"},
                   {setup.offload_optimizer ? "kept on the CPU" : "trained parameters x bytes of the optimizer / shards",
                    setup.offload_optimizer ? "放在 CPU 上" : "可训练参数 × 优化器每参数字节数 / 分片数"},
                   kZero, Always(on * Split(context, context.per.optimizer, n))});
}

}  // namespace

Context MakeContext(const Shape& shape, const Setup& setup, const ParameterCount& count, const Stage& stage) {
  const double inside = count.total > 0 ? count.linear * static_cast<double>(count.layers) / count.total : 1;
  const double rows = count.linear > 0 ? count.linear_sides / count.linear : 0;
  Context context{shape, setup, count, stage, BytesPerParameter(setup, inside, rows), 0, 1};
  const double loaded = shape.parameter_bytes > 0 && count.total > 0 ? shape.parameter_bytes / count.total : 0;
  context.frozen_bytes = setup.base_bits < 16 ? setup.base_bits / 8 + 0.5 / 8 : loaded > 0 ? loaded : context.per.compute;
  if (setup.lora_rank) {
    context.trained_share = 0;
  } else if (shape.trainable && shape.exact_parameters) {
    context.trained_share = static_cast<double>(shape.trainable) / static_cast<double>(shape.exact_parameters);
  }
  return context;
}

void AddStates(const Context& context, std::vector<Term>& terms) {
  const Setup& setup = context.setup;
  const double shards = static_cast<double>(setup.shards());
  const double weight_shards = setup.fully_sharded() ? shards : 1;
  const double on = setup.offload_parameters ? 0 : 1;
  if (context.trained_share < 1) {
    terms.push_back({"frozen weights", {"frozen weights", "冻结的权重"},
                     {"parameters that are not trained x bytes as loaded / shards", "不训练的参数 × 加载时的字节数 / 分片数"},
                     setup.lora_rank ? "LoRA, arXiv 2106.09685, section 4.2" : "requires_grad=False", Always(on * Frozen(context, weight_shards))});
  }
  terms.push_back({"weights", {setup.lora_rank ? "adapters" : "weights", setup.lora_rank ? "适配器" : "权重"},
                   {setup.offload_parameters ? "kept on the CPU" : "trained parameters x bytes of a weight, split as the strategy says",
                    setup.offload_parameters ? "放在 CPU 上" : "可训练参数 × 每个权重的字节数，按策略切分"},
                   kZero, Always(on * Split(context, context.per.weight, weight_shards))});
  AddGradients(context, shards, terms);
  AddOptimizer(context, shards, terms);
}

// DeepSpeed's estimators count whole 16-bit gradients (ZeRO-2), fp32 gradients beside the optimizer, and the largest layer
// gathered with its gradients (ZeRO-3).
void AddDeepSpeedStates(const Context& context, std::vector<Term>& terms) {
  const Setup& setup = context.setup;
  constexpr const char* kSource = "DeepSpeed, Memory Requirements (estimate_zero2/3_model_states_mem_needs)";
  const double p = context.stage.all(), n = static_cast<double>(setup.shards());
  const bool three = setup.fully_sharded();
  const double largest = setup.largest_layer > 0 ? setup.largest_layer
                                                 : std::max(context.stage.layer + context.stage.layer_experts, std::max(context.stage.embedding, context.stage.head));
  auto add = [&](const char* id, Text name, Text formula, double bytes) { terms.push_back({id, std::move(name), std::move(formula), kSource, Always(bytes)}); };
  if (three) add("gathered", {"largest layer, gathered", "聚集后的最大层"}, {"largest layer x (2 + 2) bytes", "最大层 ×（2 + 2）字节"}, 4 * largest);
  add("weights", {"weights", "权重"}, {"parameters x 2 bytes, split by ZeRO-3", "参数 × 2 字节，由 ZeRO-3 切分"}, setup.offload_parameters ? 0 : 2 * p / (three ? n : 1));
  const bool off = setup.offload_optimizer;
  if (!three) add("gradients", {"gradients", "梯度"}, {"parameters x 2 bytes, whole", "参数 × 2 字节，不切分"}, off ? 0 : 2 * p);
  add("optimizer", {"fp32 weights, gradients and Adam", "fp32 权重、梯度和 Adam"}, {"parameters x 16 bytes / shards", "参数 × 16 字节 / 分片数"}, off ? 0 : 16 * p / n);
}

}  // namespace lowtide::plan
