// Sizes of models that people ask about by name, from the configurations that their makers publish.
#include <cctype>
#include <string_view>

#include "plan/config.h"
#include "plan/shape.h"

namespace lowtide::plan {
namespace {

struct Llama {  // RMS norms, gated MLP, no biases
  const char* name;
  uint64_t layers, hidden, ffn, heads, kv_heads, vocab;
  bool tied = false, qkv_bias = false;
  uint64_t head_dim = 0;
};

constexpr Llama kLlamas[] = {
    {"llama2-7b", 32, 4096, 11008, 32, 32, 32000},
    {"llama2-13b", 40, 5120, 13824, 40, 40, 32000},
    {"llama2-70b", 80, 8192, 28672, 64, 8, 32000},
    {"llama3-8b", 32, 4096, 14336, 32, 8, 128256},
    {"llama3-70b", 80, 8192, 28672, 64, 8, 128256},
    {"llama3.1-8b", 32, 4096, 14336, 32, 8, 128256},
    {"llama3.1-70b", 80, 8192, 28672, 64, 8, 128256},
    {"llama3.1-405b", 126, 16384, 53248, 128, 8, 128256},
    {"llama3.2-1b", 16, 2048, 8192, 32, 8, 128256, true},
    {"llama3.2-3b", 28, 3072, 8192, 24, 8, 128256, true},
    {"llama3.3-70b", 80, 8192, 28672, 64, 8, 128256},
    {"mistral-7b", 32, 4096, 14336, 32, 8, 32000},
    {"qwen2.5-0.5b", 24, 896, 4864, 14, 2, 151936, true, true},
    {"qwen2.5-1.5b", 28, 1536, 8960, 12, 2, 151936, true, true},
    {"qwen2.5-3b", 36, 2048, 11008, 16, 2, 151936, true, true},
    {"qwen2.5-7b", 28, 3584, 18944, 28, 4, 152064, false, true},
    {"qwen2.5-14b", 48, 5120, 13824, 40, 8, 152064, false, true},
    {"qwen2.5-32b", 64, 5120, 27648, 40, 8, 152064, false, true},
    {"qwen2.5-72b", 80, 8192, 29568, 64, 8, 152064, false, true},
    {"tinyllama-1.1b", 22, 2048, 5632, 32, 4, 32000},
};

struct Plain {  // layer norms and biases, two matrices in the MLP (GPT-2, GPT-3 and Megatron's own models)
  const char* name;
  uint64_t layers, hidden, heads, vocab, positions;
  bool tied;
  uint64_t kv_heads = 0;
};

constexpr Plain kPlain[] = {
    {"gpt2", 12, 768, 12, 50257, 1024, true},
    {"gpt2-medium", 24, 1024, 16, 50257, 1024, true},
    {"gpt2-large", 36, 1280, 20, 50257, 1024, true},
    {"gpt2-xl", 48, 1600, 25, 50257, 1024, true},
    {"gpt3-175b", 96, 12288, 96, 50257, 2048, true},
    {"gpt-60m-megatron", 12, 512, 8, 50304, 1024, true},
    {"gpt-345m-megatron", 24, 1024, 16, 50304, 1024, true},
    {"gpt-7b-megatron", 32, 4096, 32, 131072, 8192, false, 8},
};

Shape FromLlama(const Llama& row) {
  Shape shape;
  shape.name = row.name;
  shape.family = std::string_view(row.name).starts_with("qwen") ? "qwen2" : "llama";
  shape.layers = row.layers;
  shape.hidden = row.hidden;
  shape.ffn = row.ffn;
  shape.heads = row.heads;
  shape.kv_heads = row.kv_heads;
  shape.head_dim = row.head_dim ? row.head_dim : row.hidden / row.heads;
  shape.vocab = row.vocab;
  shape.tied = row.tied;
  shape.qkv_bias = row.qkv_bias;
  return shape;
}

Shape FromPlain(const Plain& row) {
  Shape shape;
  shape.name = row.name;
  shape.family = "gpt2";
  shape.layers = row.layers;
  shape.hidden = row.hidden;
  shape.ffn = 4 * row.hidden;
  shape.heads = row.heads;
  shape.kv_heads = row.kv_heads ? row.kv_heads : row.heads;
  shape.head_dim = row.hidden / row.heads;
  shape.vocab = row.vocab;
  shape.positions = row.positions;
  shape.tied = row.tied;
  shape.gated = shape.rms_norm = false;
  shape.qkv_bias = shape.out_bias = shape.mlp_bias = shape.norm_bias = shape.dropout = true;
  return shape;
}

Shape Mixtral() {
  Shape shape = FromLlama({"mixtral-8x7b", 32, 4096, 14336, 32, 8, 32000});
  shape.family = "mixtral";
  shape.experts = {8, 2, 14336, 0, 0, false, false};
  return shape;
}

const std::vector<Shape>& Presets() {
  static const std::vector<Shape> all = [] {
    std::vector<Shape> shapes;
    for (const Llama& row : kLlamas) shapes.push_back(FromLlama(row));
    for (const Plain& row : kPlain) shapes.push_back(FromPlain(row));
    shapes.push_back(Mixtral());
#define PRESET(model, sizes)                     \
  shapes.push_back(ParseConfig(sizes, model));   \
  shapes.back().name = model;
#include "plan/presets_configs.inc"
#undef PRESET
    return shapes;
  }();
  return all;
}

std::string Plainly(const std::string& name) {
  std::string plain;
  for (unsigned char c : name.substr(name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1)) {
    if (std::isalnum(c)) plain += static_cast<char>(std::tolower(c));
  }
  return plain;
}

}  // namespace

const Shape* FindPreset(const std::string& name) {
  const std::string wanted = Plainly(name);
  for (const Shape& shape : Presets()) {
    if (!wanted.empty() && Plainly(shape.name) == wanted) return &shape;
  }
  return nullptr;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Shape& shape : Presets()) names.push_back(shape.name);
  return names;
}

}  // namespace lowtide::plan
