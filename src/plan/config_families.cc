// What each family of models leaves unsaid in its config.json. Sizes come from keys; this table has the rest: which maps
// have biases, how many norms, whether head and embedding are one. Source: each family's published configuration and the
// parameter names of its checkpoints.
#include "plan/config_families.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace lowtide::plan {
namespace {

using Fill = void (*)(const Keys&, Shape&);

void SetBiases(Shape& shape, bool on) { shape.qkv_bias = shape.out_bias = shape.mlp_bias = shape.norm_bias = on; }

// Layer norms, two matrices in the MLP, biases: GPT-2 and its kin.
void Plain(const Keys& keys, Shape& shape) {
  shape.gated = shape.rms_norm = false;
  SetBiases(shape, true);
  shape.dropout = true;
  const std::string activation = keys.Word({"activation_function", "hidden_act", "activation"});
  shape.python_gelu = activation == "gelu_new" || activation == "gelu_fast";
}

void Llama(const Keys& keys, Shape& shape) {
  shape.qkv_bias = shape.out_bias = keys.Flag({"attention_bias"}, false);
  shape.mlp_bias = keys.Flag({"mlp_bias"}, false);
}

void Qwen2(const Keys& keys, Shape& shape) { shape.qkv_bias = keys.Flag({"qkv_bias", "attention_bias"}, true); }

void Qwen3(const Keys& keys, Shape& shape) {
  Llama(keys, shape);
  shape.qk_norm = true;
}

void Olmo2(const Keys& keys, Shape& shape) {
  Llama(keys, shape);
  shape.qk_norm = shape.qk_norm_wide = true;
}

void Gemma(const Keys& keys, Shape& shape) {
  Llama(keys, shape);
  shape.tied = keys.Flag({"tie_word_embeddings"}, true);
  if (!keys.Has("head_dim")) shape.head_dim = 256;
}

void Gemma2(const Keys& keys, Shape& shape) {
  Gemma(keys, shape);
  shape.norms = 4;
}

void Gemma3(const Keys& keys, Shape& shape) {
  Gemma2(keys, shape);
  shape.qk_norm = true;
}

void Gpt2(const Keys& keys, Shape& shape) {
  Plain(keys, shape);
  if (!keys.Has("activation_function")) shape.python_gelu = true;
  shape.tied = keys.Flag({"tie_word_embeddings"}, true);
  shape.positions = keys.Count({"n_positions", "n_ctx", "max_position_embeddings"}, 1024);
  if (keys.Flag({"multi_query"}, false)) shape.kv_heads = 1;
}

void GptNeox(const Keys& keys, Shape& shape) {
  Plain(keys, shape);
  shape.dropout = keys.Number({"hidden_dropout"}, 0) > 0;
  shape.qkv_bias = shape.out_bias = keys.Flag({"attention_bias"}, true);
}

void GptJ(const Keys& keys, Shape& shape) {
  Plain(keys, shape);
  shape.qkv_bias = shape.out_bias = false;
  shape.norms = 1;
  shape.head_bias = true;
}

void Opt(const Keys& keys, Shape& shape) {
  Plain(keys, shape);
  shape.tied = keys.Flag({"tie_word_embeddings"}, true);
  shape.positions = keys.Count({"max_position_embeddings"}, 2048) + 2;
  shape.final_norm = keys.Flag({"do_layer_norm_before"}, true);
  const uint64_t dim = keys.Count({"word_embed_proj_dim"}, shape.hidden);
  if (dim != shape.hidden) shape.embedding_dim = dim;
}

void Falcon(const Keys& keys, Shape& shape) {
  Plain(keys, shape);
  const bool bias = keys.Flag({"bias"}, false);
  shape.qkv_bias = shape.out_bias = shape.mlp_bias = bias;
  shape.dropout = keys.Number({"hidden_dropout"}, 0) > 0;
  shape.tied = keys.Flag({"tie_word_embeddings"}, true);
  const bool large = keys.Flag({"new_decoder_architecture"}, false);
  if (large) {
    shape.kv_heads = keys.Count({"num_kv_heads", "n_head_kv"}, 8);
  } else {
    shape.kv_heads = keys.Flag({"multi_query"}, true) ? 1 : shape.heads;
    if (keys.Flag({"parallel_attn"}, true)) shape.norms = 1;
  }
}

void Bloom(const Keys& keys, Shape& shape) {
  Plain(keys, shape);
  shape.tied = keys.Flag({"tie_word_embeddings"}, true);
  shape.embedding_norm = true;
}

void Mpt(const Keys& keys, Shape& shape) {
  Plain(keys, shape);
  shape.tied = true;
  if (keys.Flag({"no_bias"}, true)) SetBiases(shape, false);
  shape.ffn = shape.hidden * keys.Count({"expansion_ratio"}, 4);
}

void Phi(const Keys& keys, Shape& shape) {
  Plain(keys, shape);
  shape.norms = 1;
  shape.head_bias = true;
}

void Starcoder2(const Keys& keys, Shape& shape) {
  Plain(keys, shape);
  shape.qkv_bias = shape.out_bias = shape.mlp_bias = keys.Flag({"use_bias"}, true);
  shape.tied = keys.Flag({"tie_word_embeddings"}, true);
}

void StableLm(const Keys& keys, Shape& shape) {
  shape.rms_norm = false;
  shape.norm_bias = true;
  shape.qkv_bias = keys.Flag({"use_qkv_bias"}, false);
}

// The transform before the head of masked language models: one square map, one norm, and the head's bias.
void Bert(const Keys& keys, Shape& shape) {
  Plain(keys, shape);
  shape.kind = Kind::kEncoder;
  shape.tied = true;
  shape.final_norm = false;
  shape.embedding_norm = true;
  shape.positions = keys.Count({"max_position_embeddings"}, 512);
  shape.token_types = keys.Count({"type_vocab_size"}, 2);
  const uint64_t square = shape.hidden * shape.hidden + shape.hidden;
  if (shape.has_head) {
    shape.head_bias = true;
    shape.other = square + 2 * shape.hidden;
  } else {
    shape.other = square;  // the pooler
  }
}

void DistilBert(const Keys& keys, Shape& shape) {
  Bert(keys, shape);
  shape.token_types = 0;
  if (!shape.has_head) shape.other = 0;
}

void Vit(const Keys& keys, Shape& shape) {
  Plain(keys, shape);
  shape.dropout = keys.Number({"hidden_dropout_prob"}, 0) > 0;
  shape.kind = Kind::kVision;
  shape.has_head = false;
  shape.vocab = 0;
  const uint64_t image = keys.Count({"image_size"}, 224), patch = std::max<uint64_t>(1, keys.Count({"patch_size"}, 16));
  const uint64_t channels = keys.Count({"num_channels"}, 3), classes = std::max<uint64_t>(keys.Size("id2label"), keys.Count({"num_labels"}, 0));
  if (image > 65536 || patch > 4096 || channels > 4096) throw Error("image_size, patch_size or num_channels is absurd", "check these sizes", keys.file());
  shape.positions = (image / patch) * (image / patch) + 1;
  shape.other = shape.hidden * (patch * patch * channels + 1) + shape.hidden;
  if (classes) shape.other += classes * (shape.hidden + 1);
}

void T5(const Keys& keys, Shape& shape) {
  shape.kind = Kind::kEncoderDecoder;
  shape.gated = keys.Word({"feed_forward_proj"}).starts_with("gated");
  shape.dropout = true;
  shape.tied = keys.Flag({"tie_word_embeddings"}, true);
  shape.encoder_layers = shape.layers;
  shape.layers = keys.Count({"num_decoder_layers"}, shape.layers);
  shape.relative_biases = std::min<uint64_t>(keys.Count({"relative_attention_num_buckets"}, 32), 1 << 20) * shape.heads;
}

// Norms after the sums, one after each of the two stacks' embeddings, positions of both with two to spare.
void Bart(const Keys& keys, Shape& shape) {
  Plain(keys, shape);
  shape.kind = Kind::kEncoderDecoder;
  shape.tied = keys.Flag({"tie_word_embeddings"}, true);
  shape.encoder_layers = keys.Count({"encoder_layers"}, shape.layers);
  shape.layers = keys.Count({"decoder_layers"}, shape.layers);  // num_hidden_layers is the encoder's
  shape.positions = 2 * (keys.Count({"max_position_embeddings"}, 1024) + 2);
  shape.final_norm = false;
  shape.other = 4 * shape.hidden;
}

void GptNeo(const Keys& keys, Shape& shape) {
  Gpt2(keys, shape);
  shape.qkv_bias = false;
  shape.positions = keys.Count({"max_position_embeddings"}, 2048);
}

void Cohere(const Keys& keys, Shape& shape) {
  Llama(keys, shape);
  shape.norms = 1;
  shape.tied = keys.Flag({"tie_word_embeddings"}, true);
}

void ReadExperts(const Keys& keys, Shape& shape) {
  Experts& moe = shape.experts;
  moe.count = keys.Count({"num_local_experts", "num_experts", "n_routed_experts"}, 0);
  moe.per_token = keys.Count({"num_experts_per_tok", "num_experts_per_token", "moe_top_k"}, 2);
  moe.ffn = keys.Count({"moe_intermediate_size"}, shape.ffn);
  moe.shared_ffn = keys.Count({"shared_expert_intermediate_size"}, 0);
}

void Mixtral(const Keys& keys, Shape& shape) { ReadExperts(keys, shape); }

void Qwen2Moe(const Keys& keys, Shape& shape) {
  Qwen2(keys, shape);
  ReadExperts(keys, shape);
  shape.experts.shared_gate = shape.experts.shared_ffn > 0;
}

void Qwen3Moe(const Keys& keys, Shape& shape) {
  Qwen3(keys, shape);
  ReadExperts(keys, shape);
}

void DeepSeek(const Keys& keys, Shape& shape) {
  Llama(keys, shape);
  ReadExperts(keys, shape);
  const uint64_t shared = keys.Count({"n_shared_experts"}, 0);
  if (shared > 65536 || shape.experts.ffn > (1u << 24)) throw Error("n_shared_experts or moe_intermediate_size is absurd", "check these sizes", keys.file());
  shape.experts.shared_ffn = shared * shape.experts.ffn;
  shape.experts.dense_layers = keys.Count({"first_k_dense_replace"}, 0);
  shape.experts.router_bias = keys.Word({"topk_method"}) == "noaux_tc";
  shape.latent = {keys.Count({"q_lora_rank"}, 0), keys.Count({"kv_lora_rank"}, 0), keys.Count({"qk_nope_head_dim"}, 0),
                  keys.Count({"qk_rope_head_dim"}, 0), keys.Count({"v_head_dim"}, 0)};
  if (shape.latent.kv_rank) shape.kv_heads = shape.heads;
}

struct Family {
  std::string_view type;
  Fill fill;
};

constexpr Family kFamilies[] = {
    {"llama", Llama},       {"mistral", Llama},        {"mixtral", Mixtral},     {"qwen2", Qwen2},           {"qwen2_moe", Qwen2Moe},
    {"qwen3", Qwen3},       {"qwen3_moe", Qwen3Moe},   {"gemma", Gemma},         {"gemma2", Gemma2},         {"gemma3", Gemma3},
    {"gemma3_text", Gemma3}, {"gpt2", Gpt2},           {"gpt_bigcode", Gpt2},    {"gpt_neox", GptNeox},      {"gptj", GptJ},
    {"opt", Opt},           {"falcon", Falcon},        {"RefinedWeb", Falcon},   {"RefinedWebModel", Falcon}, {"bloom", Bloom},
    {"mpt", Mpt},           {"phi", Phi},              {"phi3", Llama},          {"starcoder2", Starcoder2}, {"stablelm", StableLm},
    {"bert", Bert},         {"roberta", Bert},         {"xlm-roberta", Bert},    {"distilbert", DistilBert}, {"vit", Vit},
    {"t5", T5},             {"mt5", T5},               {"deepseek", DeepSeek},   {"deepseek_v2", DeepSeek},  {"deepseek_v3", DeepSeek},
    {"bart", Bart},          {"gpt_neo", GptNeo},      {"codegen", GptJ},       {"cohere", Cohere},
    {"olmo2", Olmo2},       {"granite", Llama},        {"smollm3", Llama},       {"mllama_text_model", Llama}, {"qwen2_vl", Qwen2},
    {"qwen2_5_vl", Qwen2},  {"qwen2_5_vl_text", Qwen2}, {"ministral", Llama},     {"kimi_k2", DeepSeek},
};

void ReadSizes(const Keys& keys, Shape& shape) {
  shape.layers = keys.Need({"num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"});
  shape.hidden = keys.Need({"hidden_size", "n_embd", "d_model", "dim", "n_embed"});
  shape.heads = keys.Need({"num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", "attention_heads"});
  if (!shape.heads || shape.hidden > (1u << 20)) {
    throw Error(shape.heads ? "the hidden size is absurd" : "has 0 attention heads", "check hidden_size and num_attention_heads", keys.file());
  }
  shape.kv_heads = keys.Count({"num_key_value_heads", "num_kv_heads", "n_head_kv"}, shape.heads);
  shape.head_dim = keys.Count({"head_dim", "d_kv", "kv_channels"}, shape.hidden / shape.heads);
  shape.ffn = keys.Count({"intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size", "decoder_ffn_dim", "encoder_ffn_dim", "hidden_dim"}, 4 * shape.hidden);
  shape.vocab = keys.Count({"vocab_size", "padded_vocab_size"}, 0);
  shape.tied = keys.Flag({"tie_word_embeddings"}, false);
}

// A classifier, and a bare model that ends in hidden states, have no logits per token.
bool HasHead(const Keys& all) {
  const std::string text = all.FirstWord("architectures");
  return text.find("Classification") == std::string::npos && !text.ends_with("Model");
}

}  // namespace

Shape ShapeOfFamily(const Keys& keys, const Keys& all) {
  Shape shape;
  shape.family = keys.Word({"model_type"});
  if (shape.family.empty()) shape.family = all.Word({"model_type"});
  ReadSizes(keys, shape);
  shape.has_head = HasHead(all);
  auto family = std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const Family& f) { return f.type == shape.family; });
  if (family != std::end(kFamilies)) {
    family->fill(keys, shape);
    return shape;
  }
  Llama(keys, shape);
  if (keys.Has("num_local_experts") || keys.Has("num_experts") || keys.Has("n_routed_experts")) ReadExperts(keys, shape);
  const std::string type = shape.family.empty() ? "no model_type" : fmt::format("model_type \"{}\" is not known", shape.family.substr(0, 40));
  shape.assumed.push_back({fmt::format("{}: taken for a Llama-like decoder (gated MLP, RMS norms, no biases)", type),
                           fmt::format("{}：按类似 Llama 的解码器处理（门控 MLP、RMS 归一化、无偏置）", type)});
  for (const char* key : {"intermediate_size", "vocab_size", "num_key_value_heads"}) {
    if (!keys.Has(key)) shape.assumed.push_back({fmt::format("\"{}\" is not there: the usual value is taken", key), fmt::format("没有 \"{}\"：取常用值", key)});
  }
  return shape;
}

}  // namespace lowtide::plan
