#include "plan/shape.h"

#include <algorithm>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lowtide::plan {
namespace {

double D(uint64_t value) { return static_cast<double>(value); }

struct Sum {
  double weights = 0, sides = 0, biases = 0;  // biases: and norms

  void Linear(double in, double out, bool bias) {
    weights += in * out;
    sides += in + out;
    if (bias) biases += out;
  }
};

void AddLatent(const Shape& shape, Sum& sum) {
  const LatentAttention& latent = shape.latent;
  const double h = D(shape.hidden), a = D(shape.heads), query = a * D(latent.nope_dim + latent.rope_dim);
  if (latent.q_rank) {
    sum.Linear(h, D(latent.q_rank), false);
    sum.Linear(D(latent.q_rank), query, false);
    sum.biases += D(latent.q_rank);
  } else {
    sum.Linear(h, query, false);
  }
  sum.Linear(h, D(latent.kv_rank + latent.rope_dim), false);
  sum.Linear(D(latent.kv_rank), a * D(latent.nope_dim + latent.v_dim), false);
  sum.biases += D(latent.kv_rank);
  sum.Linear(a * D(latent.v_dim), h, false);
}

void AddAttention(const Shape& shape, Sum& sum) {
  if (shape.latent.kv_rank) return AddLatent(shape, sum);
  const double h = D(shape.hidden), q = D(shape.heads) * D(shape.head_dim), r = D(shape.kv_heads) * D(shape.head_dim);
  sum.Linear(h, q, shape.qkv_bias);
  sum.Linear(h, r, shape.qkv_bias);
  sum.Linear(h, r, shape.qkv_bias);
  sum.Linear(q, h, shape.out_bias);
  if (shape.qk_norm) sum.biases += shape.qk_norm_wide ? q + r : 2 * D(shape.head_dim);
}

void AddMlp(const Shape& shape, double ffn, double copies, Sum& sum) {
  const double h = D(shape.hidden);
  Sum one;
  for (int i = 0; i < (shape.gated ? 2 : 1); ++i) one.Linear(h, ffn, shape.mlp_bias);
  one.Linear(ffn, h, shape.mlp_bias);
  sum.weights += copies * one.weights;
  sum.sides += copies * one.sides;
  sum.biases += copies * one.biases;
}

double NormSize(const Shape& shape) { return D(shape.hidden) * (shape.norm_bias ? 2 : 1); }

// The decoder of an encoder-decoder has a second attention and its norm.
Sum DenseLayer(const Shape& shape, bool cross) {
  Sum sum;
  for (int i = 0; i < (cross ? 2 : 1); ++i) AddAttention(shape, sum);
  AddMlp(shape, D(shape.ffn), 1, sum);
  sum.biases += (D(shape.norms) + (cross ? 1 : 0)) * NormSize(shape);
  return sum;
}

struct ExpertLayer {
  Sum sum;
  double experts = 0, active = 0;
};

ExpertLayer CountExpertLayer(const Shape& shape) {
  const Experts& moe = shape.experts;
  ExpertLayer layer;
  AddAttention(shape, layer.sum);
  layer.sum.biases += D(shape.norms) * NormSize(shape);
  layer.sum.Linear(D(shape.hidden), D(moe.count), moe.router_bias);
  if (moe.shared_ffn) AddMlp(shape, D(moe.shared_ffn), 1, layer.sum);
  if (moe.shared_gate) layer.sum.Linear(D(shape.hidden), 1, false);
  Sum one;
  AddMlp(shape, D(moe.ffn), 1, one);
  layer.active = layer.sum.weights + layer.sum.biases + D(moe.per_token) * (one.weights + one.biases);
  layer.experts = D(moe.count) * (one.weights + one.biases);
  AddMlp(shape, D(moe.ffn), D(moe.count), layer.sum);
  return layer;
}

void CountLayers(const Shape& shape, ParameterCount& count) {
  count.layers = shape.layers + shape.encoder_layers;
  double total = 0, active = 0;
  auto add = [&](const Sum& sum, double layers) {
    total += layers * (sum.weights + sum.biases);
    count.linear += layers * sum.weights;
    count.linear_sides += layers * sum.sides;
    count.unsplit += layers * sum.biases;
  };
  const double dense = shape.experts.count ? std::min(D(shape.experts.dense_layers), D(shape.layers)) : D(shape.layers);
  add(DenseLayer(shape, shape.kind == Kind::kEncoderDecoder), dense);
  add(DenseLayer(shape, false), D(shape.encoder_layers));
  active = total;
  if (const double sparse = D(shape.layers) - dense; sparse > 0) {
    ExpertLayer layer = CountExpertLayer(shape);
    add(layer.sum, sparse);
    active += sparse * layer.active;
    count.experts = sparse * layer.experts / D(count.layers);
  }
  const double layers = D(count.layers);
  count.layer = total / layers;
  count.linear /= layers;
  count.linear_sides /= layers;
  count.unsplit /= layers;
  count.active = active;
}

// The sizes of a live module may differ a little from what its configuration says: adapters, another head.
void ScaleTo(double wanted, ParameterCount& count) {
  const double inside = count.layers_total(), outside = count.total - inside;
  if (wanted > outside && inside > 0) {
    const double factor = (wanted - outside) / inside;
    for (double* part : {&count.layer, &count.experts, &count.unsplit, &count.linear}) *part *= factor;
  } else {
    const double factor = wanted / count.total;
    for (double* part : {&count.layer, &count.experts, &count.unsplit, &count.linear, &count.embedding, &count.head, &count.rest}) *part *= factor;
  }
  count.active *= wanted / count.total;
  count.total = wanted;
}

}  // namespace

ParameterCount CountParameters(const Shape& shape) {
  ParameterCount count;
  CountLayers(shape, count);
  const double h = D(shape.hidden), e = shape.embedding_dim ? D(shape.embedding_dim) : h;
  count.embedding = D(shape.vocab) * e + D(shape.positions) * h + D(shape.token_types) * h;
  if (e != h) count.embedding += 2 * e * h;
  if (shape.embedding_norm) count.embedding += NormSize(shape);
  if (shape.has_head && !shape.tied) count.head = D(shape.vocab) * e;
  if (shape.head_bias) count.head += D(shape.vocab);
  const double stacks = shape.kind == Kind::kEncoderDecoder ? 2 : 1;
  count.rest = (shape.final_norm ? stacks * NormSize(shape) : 0) + stacks * D(shape.relative_biases) + D(shape.other);
  const double outside = count.embedding + count.head + count.rest;
  count.total = count.layers_total() + outside;
  count.active += outside;
  if (shape.exact_parameters) ScaleTo(D(shape.exact_parameters), count);
  return count;
}

void CheckShape(const Shape& shape) {
  struct Limit {
    const char* name;
    uint64_t value, least, most;
  };
  const Limit limits[] = {
      {"layers", shape.layers, 1, 100000},           {"encoder layers", shape.encoder_layers, 0, 100000},
      {"hidden size", shape.hidden, 1, 1u << 20},    {"MLP size", shape.ffn, shape.experts.count ? 0u : 1u, 1u << 24},
      {"heads", shape.heads, 1, 1u << 16},           {"key-value heads", shape.kv_heads, 1, 1u << 16},
      {"head size", shape.head_dim, 1, 1u << 16},    {"vocabulary", shape.vocab, 0, 1u << 26},
      {"experts", shape.experts.count, 0, 1u << 16}, {"experts per token", shape.experts.per_token, 0, 1u << 16},
      {"expert size", shape.experts.ffn, 0, 1u << 24}, {"positions", shape.positions, 0, 1u << 30},
      {"shared expert size", shape.experts.shared_ffn, 0, 1u << 24}, {"embedding size", shape.embedding_dim, 0, 1u << 20},
      {"token types", shape.token_types, 0, 1u << 20}, {"latent ranks", std::max(shape.latent.q_rank, shape.latent.kv_rank), 0, 1u << 20},
      {"latent head sizes", std::max({shape.latent.nope_dim, shape.latent.rope_dim, shape.latent.v_dim}), 0, 1u << 16},
      {"dense layers", shape.experts.dense_layers, 0, 100000},
  };
  for (const Limit& limit : limits) {
    if (limit.value >= limit.least && limit.value <= limit.most) continue;
    throw Error(fmt::format("{} is {}, which no model has", limit.name, limit.value),
                fmt::format("give a number from {} to {}", limit.least, limit.most));
  }
  if (shape.kv_heads > shape.heads || shape.heads % shape.kv_heads) {
    throw Error(fmt::format("{} heads cannot share {} key-value heads", shape.heads, shape.kv_heads),
                "the key-value heads must divide the heads");
  }
  if (shape.experts.count && shape.experts.per_token > shape.experts.count) {
    throw Error(fmt::format("a token goes to {} of {} experts", shape.experts.per_token, shape.experts.count),
                "experts per token cannot exceed the experts");
  }
  if (const double total = CountParameters(shape).total; !(total > 0) || total > 1e15) {
    throw Error(fmt::format("these sizes make {:.3g} parameters", total), "plan for at most 1e15 parameters; check each size");
  }
}

}  // namespace lowtide::plan
