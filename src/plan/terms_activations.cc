// What the forward pass keeps for the backward pass: Korthikanti et al., arXiv 2205.05198, section 4, written per tensor so
// that grouped heads, gated MLPs, experts, unfused code and PyTorch's own tensor parallelism have their place.
#include <algorithm>

#include "plan/terms.h"

namespace lowtide::plan {
namespace {

constexpr const char* kPaper = "Korthikanti et al., arXiv 2205.05198, section 4";

// Bytes per token of one layer, before and after the split over tensor-parallel GPUs.
struct Layer {
  double norm_inputs = 0;    // what the norms keep of the residual stream
  double matrix_inputs = 0;  // what they hand to the matrix products
  double masks = 0;          // dropout
  double attention = 0, mlp = 0, scores = 0;
  double products = 0;       // results of matrix products, for selective recomputation
  double attention_out = 0;
  double input = 0;          // the residual stream itself: what checkpointing keeps

  double Split(const Setup& setup) const {
    const double t = static_cast<double>(setup.tensor), sp = setup.sequence_parallel ? t : 1;
    // Megatron gathers the inputs of matrix products again in the backward pass; PyTorch's DTensor keeps them gathered.
    const double inputs = setup.code == Code::kFused ? matrix_inputs / sp : matrix_inputs;
    return norm_inputs / sp + masks / sp + inputs + (attention + mlp + scores) / t;
  }
};

struct Sizes {
  double h, q, k, v, e, residual;  // numbers per token; e and residual: bytes of a number
};

Sizes SizesOf(const Context& context) {
  const Shape& shape = context.shape;
  const Setup& setup = context.setup;
  const double a = static_cast<double>(shape.heads), d = static_cast<double>(shape.head_dim);
  Sizes sizes{static_cast<double>(shape.hidden), a * d, static_cast<double>(shape.kv_heads) * d, 0, context.per.compute, context.per.compute};
  sizes.v = sizes.k;
  if (shape.latent.kv_rank) {
    sizes.q = sizes.k = a * static_cast<double>(shape.latent.nope_dim + shape.latent.rope_dim);
    sizes.v = a * static_cast<double>(shape.latent.v_dim);
  } else if (setup.code == Code::kEager) {
    sizes.k = sizes.v = sizes.q;  // repeat_kv writes the grouped heads out
  }
  const bool autocast = setup.weights == Weights::kMixed && !setup.torch_sharded();
  if (autocast) sizes.residual = 4;  // fp32 weights: the stream between the layers stays in fp32
  return sizes;
}

double MlpBytes(const Context& context, double f, double e) {
  const bool eager = context.setup.code == Code::kEager;
  if (context.shape.gated) return e * (eager ? 4 : 3) * f;
  return e * (eager && context.shape.python_gelu ? 5 : 2) * f;
}

// Averages over layers with an ordinary MLP and with experts: (bytes kept, numbers that matrix products make).
std::pair<double, double> Mlp(const Context& context, const Sizes& sizes) {
  const Shape& shape = context.shape;
  const double maps = shape.gated ? 2 : 1, f = static_cast<double>(shape.ffn);
  const double dense_bytes = MlpBytes(context, f, sizes.e), dense_products = maps * f + sizes.h;
  const Experts& moe = shape.experts;
  if (!moe.count) return {dense_bytes, dense_products};
  const double k = static_cast<double>(moe.per_token), fe = static_cast<double>(moe.ffn), fs = static_cast<double>(moe.shared_ffn);
  const double bytes = k * (MlpBytes(context, fe, sizes.e) + 2 * sizes.e * sizes.h) + MlpBytes(context, fs, sizes.e);
  const double products = k * (maps * fe + sizes.h) + maps * fs + (fs > 0 ? sizes.h : 0);
  const double dense = std::min(1.0, static_cast<double>(moe.dense_layers) / static_cast<double>(std::max<uint64_t>(1, shape.layers)));
  return {dense * dense_bytes + (1 - dense) * bytes, dense * dense_products + (1 - dense) * products};
}

Layer LayerOf(const Context& context) {
  const Shape& shape = context.shape;
  const Setup& setup = context.setup;
  const Sizes s = SizesOf(context);
  const bool eager = setup.code == Code::kEager;
  // Half of an encoder-decoder's layers have a second attention.
  const double attentions = shape.kind == Kind::kEncoderDecoder ? 1.5 : 1;
  Layer layer;
  const double norms = static_cast<double>(shape.norms) + attentions - 1, feeding = std::min(norms, 2.0 + attentions - 1);
  // An RMS norm written in Python keeps its input in fp32 and the normalised numbers before the scale.
  layer.norm_inputs = norms * s.h * (eager && shape.rms_norm ? 4 + s.residual : s.residual);
  layer.matrix_inputs = feeding * s.h * s.e;
  layer.masks = shape.dropout ? 2 * s.h : 0;
  layer.attention_out = attentions * s.e * (shape.latent.kv_rank ? s.v : s.q);
  layer.attention = attentions * s.e * (s.q + s.k + s.v) + layer.attention_out;
  if (shape.latent.kv_rank) layer.attention += 2 * s.e * static_cast<double>(shape.latent.q_rank + shape.latent.kv_rank);
  if (!setup.flash) {
    const double per_score = eager ? 4 + s.e + (shape.dropout ? s.e + 1 : 0) : s.e + (shape.dropout ? s.e + 1 : 0);
    layer.scores = attentions * static_cast<double>(shape.heads) * static_cast<double>(setup.sequence) * per_score;
  }
  auto [mlp, mlp_products] = Mlp(context, s);
  layer.mlp = mlp;
  layer.products = attentions * (s.q + s.h + 2 * static_cast<double>(shape.kv_heads * shape.head_dim)) + mlp_products;
  layer.input = s.residual * s.h;
  if (setup.lora_rank) layer.mlp += s.e * static_cast<double>(setup.lora_rank) * (shape.gated ? 7 : 6);
  return layer;
}

// Bytes per token that one layer keeps under the setup's recomputation.
double Kept(const Context& context, const Layer& layer) {
  const Setup& setup = context.setup;
  const double t = static_cast<double>(setup.tensor), sp = setup.sequence_parallel ? t : 1;
  switch (setup.recompute) {
    case Recompute::kNone: return layer.Split(setup);
    case Recompute::kSelective: {
      if (setup.code == Code::kFused) return layer.Split(setup) - layer.scores / t;  // Megatron recomputes the core attention
      return layer.input / sp + context.per.compute * layer.products / 2 / t + layer.attention_out / t;
    }
    case Recompute::kFull: return layer.input / sp;
    case Recompute::kOffload: return std::min(1.0, 2 / context.stage.layers) * layer.input / sp;
  }
  return 0;
}

Text KeptFormula(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone: return {"all that the layers' operations keep, per token and layer", "各层运算为反向传播保存的全部内容（每 token 每层）"};
    case Recompute::kSelective: return {"layer input, every second matrix product and the attention's result, per token and layer", "每 token 每层：层输入、每隔一个矩阵乘积以及注意力结果"};
    case Recompute::kFull: return {"only the input of each layer, per token", "每 token 仅保存各层输入"};
    case Recompute::kOffload: return {"inputs of two layers; the others wait on the CPU", "两层的输入；其余放在 CPU 上"};
  }
  return {};
}

void AddKept(const Context& context, const Layer& layer, std::vector<Term>& terms) {
  const Setup& setup = context.setup;
  const Stage& stage = context.stage;
  const double tokens = setup.tokens(), ratio = setup.activation_ratio, sp = setup.sequence_parallel ? static_cast<double>(setup.tensor) : 1;
  const double kept = ratio * tokens * stage.in_flight * stage.layers * Kept(context, layer);
  // At the end of the backward pass one layer's share is left.
  const double left = std::min(kept, ratio * tokens * Kept(context, layer));
  Text formula = KeptFormula(setup.recompute);
  if (setup.pipeline > 1) {
    formula.en += ", for the micro batches in flight";
    formula.zh += "，乘以在途微批数";
  }
  terms.push_back({"activations", {"activations", "激活值"}, formula, kPaper, {kept, kept, left, 0, 0}});
  if (stage.last && context.shape.final_norm) {
    const double ends = ratio * tokens * (layer.input / sp + context.per.compute * static_cast<double>(context.shape.hidden));
    terms.push_back({"final norm", {"final norm", "最后的归一化"}, {"its input and result", "其输入和结果"}, kPaper, {ends, ends, 0, 0, 0}});
  }
}

void AddBackward(const Context& context, const Layer& layer, std::vector<Term>& terms) {
  const Setup& setup = context.setup;
  const double tokens = setup.tokens(), t = static_cast<double>(setup.tensor), ratio = setup.activation_ratio;
  const double again = setup.recompute == Recompute::kNone ? 0 : ratio * tokens * layer.Split(setup);
  if (again > 0) {
    terms.push_back({"recomputed", {"one layer, recomputed", "重新计算的一层"}, {"all activations of the layer whose backward pass runs", "正在反向传播的那一层的全部激活值"}, kPaper, {0, again, again, 0, 0}});
  }
  const double f = context.shape.experts.count ? static_cast<double>(context.shape.experts.ffn * std::max<uint64_t>(1, context.shape.experts.per_token))
                                               : static_cast<double>(context.shape.ffn);
  const double flowing = ratio * tokens * context.per.compute * (2 * static_cast<double>(context.shape.hidden) + 2 * f / t);
  terms.push_back({"activation gradients", {"gradients of activations", "激活值的梯度"}, {"two of the residual stream and two of the MLP's inner size", "残差流的两份和 MLP 内部维度的两份"}, kPaper, {0, flowing, flowing, 0, 0}});
}

// Bytes per logit: 16-bit logits, their fp32 copy, log-softmax, its gradient and the gradient's cast, less what is freed.
double PerLogit(Logits kind) { return kind == Logits::kWhole ? 16 : kind == Logits::kFused ? 8 : 4; }

void AddLogits(const Context& context, std::vector<Term>& terms) {
  const Setup& setup = context.setup;
  const Shape& shape = context.shape;
  if (!context.stage.last || !shape.has_head || !shape.vocab) return;
  const double share = shape.kind == Kind::kEncoderDecoder ? 0.5 : 1;  // only the decoder's tokens are scored
  const double logits = share * setup.tokens() * static_cast<double>(shape.vocab) / static_cast<double>(setup.tensor), ratio = setup.activation_ratio;
  const double bytes = ratio * PerLogit(setup.logits_kind()) * logits;
  terms.push_back({"logits", {"logits and loss", "logits 与损失"},
                   {"tokens x vocabulary x 16 bytes (8 with a fused or compiled loss, 4 in chunks)", "token 数 × 词表 × 16 字节（融合或编译的损失为 8，分块为 4）"},
                   "torch.nn.functional.cross_entropy on logits cast to fp32", {bytes, 0, 0, 0, 0}});
  const double hidden = ratio * setup.tokens() * context.per.compute * static_cast<double>(shape.hidden);
  terms.push_back({"head input", {"gradient at the head's input", "输出层输入的梯度"}, {"tokens x hidden size", "token 数 × 隐藏维度"}, kPaper, {hidden, 0, 0, 0, 0}});
  if (setup.pipeline > 1 && setup.torch_sharded()) {
    const double kept = context.per.compute * logits * static_cast<double>(setup.accumulate);
    terms.push_back({"outputs", {"outputs of all micro batches", "所有微批的输出"}, {"the last stage returns the logits of the whole batch", "最后一级返回整批的 logits"},
                     "torch.distributed.pipelining", {kept, kept, kept, 0, 0}});
  }
}

}  // namespace

void AddActivations(const Context& context, std::vector<Term>& terms) {
  const Setup& setup = context.setup;
  if (setup.measured_per_sample) {
    const double bytes = setup.measured_fixed + *setup.measured_per_sample * static_cast<double>(setup.micro_batch);
    terms.push_back({"activations", {"activations, as measured", "激活值（实测）"}, {"measured bytes per sample x micro batch", "实测每样本字节数 × 微批大小"},
                     "lowtide plan --measure", {bytes, bytes, 0, 0, 0}});
    return;
  }
  const Layer layer = LayerOf(context);
  AddKept(context, layer, terms);
  AddBackward(context, layer, terms);
  AddLogits(context, terms);
}

}  // namespace lowtide::plan
