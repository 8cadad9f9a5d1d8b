// Volumes of ring collectives: an all-gather or reduce-scatter of B bytes over n GPUs sends B (n-1)/n, an all-reduce twice
// that (Rajbhandari et al., arXiv 1910.02054, section 7; Shoeybi et al., arXiv 1909.08053, section 3).
#include "plan/cost.h"

#include <algorithm>

namespace lowtide::plan {
namespace {

double D(uint64_t value) { return static_cast<double>(value); }
double Ring(double n) { return n > 1 ? (n - 1) / n : 0; }

struct Numbers {
  double parameters;  // on one GPU, before the states' sharding
  double trained;     // of them
  double layers;      // on one GPU
  StateBytes per;
};

Numbers NumbersOf(const Shape& shape, const Setup& setup, const ParameterCount& count) {
  const double split = D(setup.tensor) * D(setup.pipeline);
  const double experts = count.experts * D(count.layers), ep = D(setup.expert);
  Numbers n{};
  n.parameters = (count.total - experts) / split + experts / split / ep;
  n.trained = setup.lora_rank ? D(setup.lora_rank) * count.linear_sides * D(count.layers) / split
              : shape.trainable ? n.parameters * D(shape.trainable) / D(std::max<uint64_t>(1, shape.exact_parameters))
                                : n.parameters;
  n.layers = D(count.layers) / D(setup.pipeline);
  n.per = BytesPerParameter(setup, 1, 0.001);
  return n;
}

// Of the data-parallel group, per step: what overlaps with computing.
double DataBytes(const Setup& setup, const Numbers& n) {
  const double group = D(setup.data() * setup.context), micro = D(setup.accumulate);
  const double gradients = n.trained * n.per.reduce, weights = n.parameters * n.per.compute;
  switch (setup.strategy) {
    case Strategy::kSingle: return 0;
    case Strategy::kDdp: return 2 * Ring(group) * gradients;
    case Strategy::kZero1: return Ring(group) * (gradients + n.trained * n.per.compute);
    case Strategy::kZero2: return Ring(group) * (micro * gradients + n.trained * n.per.compute);
    case Strategy::kMegatron: return 2 * Ring(group) * gradients;
    case Strategy::kZero3:
    case Strategy::kFsdp: {
      const double passes = setup.pipeline > 1 ? 1 : micro;  // under a pipeline the stage stays gathered
      return Ring(group) * passes * ((setup.pipeline > 1 ? 1 : 2) * weights + gradients);
    }
    case Strategy::kHsdp: {
      const double inside = D(setup.shards());
      return Ring(inside) * micro * (2 * weights + gradients) + 2 * Ring(group / inside) * gradients / inside;
    }
  }
  return 0;
}

// Of tensor, context and expert parallelism: what computing waits for.
double BlockingBytes(const Shape& shape, const Setup& setup, const Numbers& n) {
  const double e = n.per.compute, micro = D(setup.accumulate), tokens = setup.tokens(), h = D(shape.hidden);
  const double passes = setup.recompute == Recompute::kFull ? 6 : 4;  // all-reduces a layer
  double bytes = micro * n.layers * passes * 2 * Ring(D(setup.tensor)) * tokens * h * e;
  const double keys = 2 * D(shape.kv_heads * shape.head_dim) * e / D(setup.tensor);
  bytes += micro * n.layers * 3 * (D(setup.context) - 1) * tokens * keys;
  bytes += micro * n.layers * 4 * Ring(D(setup.expert)) * tokens * h * e * D(shape.experts.per_token);
  return bytes;
}

double RecomputeShare(const Setup& setup) {
  switch (setup.recompute) {
    case Recompute::kNone: return 0;
    case Recompute::kSelective: return setup.code == Code::kFused ? 0.02 : 1.0 / 6;  // half of the forward pass's products
    default: return 1.0 / 3;  // the forward pass once more: 2 of 6 FLOPs per parameter and token
  }
}

// Bytes per step to and from the host, and bytes that lie there.
void AddOffload(const Setup& setup, const Numbers& n, Cost& cost) {
  const double shards = D(setup.shards());
  if (setup.offload_optimizer || setup.offload_parameters) {
    cost.host_bytes += n.trained / shards * (n.per.gradient + n.per.compute);
    cost.host_memory += n.trained / shards * (n.per.gradient + n.per.master + n.per.optimizer);
  }
  if (setup.offload_parameters) {
    cost.host_bytes += n.parameters / shards * n.per.weight * 2 * D(setup.accumulate);
    cost.host_memory += n.parameters / shards * n.per.weight;
  }
  cost.host_memory *= D(std::min(setup.gpus, setup.gpus_per_node));
}

double Flops(const Shape& shape, const Setup& setup, const ParameterCount& count) {
  const double tokens = setup.tokens() * D(setup.accumulate);
  const double scores = (shape.kind == Kind::kDecoder ? 6.0 : 12.0) * D(count.layers) * D(shape.heads * shape.head_dim) * D(setup.sequence);
  return tokens * (6 * count.active + scores) / (D(setup.tensor) * D(setup.pipeline));
}

}  // namespace

Cost Price(const Shape& shape, const Setup& setup, const Gpu& gpu) {
  constexpr double kCpuBytesPerSecond = 100e9;  // a node's CPU stepping Adam
  const ParameterCount count = CountParameters(shape);
  const Numbers n = NumbersOf(shape, setup, count);
  Cost cost;
  cost.recompute = RecomputeShare(setup);
  cost.bubble = (D(setup.pipeline) - 1) / D(setup.accumulate);
  const double data = DataBytes(setup, n), blocking = BlockingBytes(shape, setup, n);
  const double between = setup.pipeline > 1 ? 2 * D(setup.accumulate) * setup.tokens() * D(shape.hidden) * n.per.compute : 0;
  cost.network_bytes = data + blocking + between;
  AddOffload(setup, n, cost);
  const bool one_node = setup.gpus <= setup.gpus_per_node;
  const double wide = setup.strategy == Strategy::kHsdp || one_node ? gpu.link : gpu.network;
  const double narrow = setup.tensor * setup.context * setup.expert <= setup.gpus_per_node ? gpu.link : gpu.network;
  constexpr double efficiency = 0.4;  // the same for all: the order is to come from the strategy, not from the kernels
  const double compute = Flops(shape, setup, count) / (efficiency * gpu.flops) * (1 + cost.recompute) * (1 + cost.bubble);
  const double hidden = std::max(0.05 * data / wide, data / wide - 0.7 * compute);
  cost.seconds = compute + hidden + blocking / narrow + (one_node ? between / gpu.link : between / gpu.network);
  if (cost.host_bytes > 0) cost.seconds += cost.host_bytes / gpu.host + cost.host_memory / kCpuBytesPerSecond;
  const double replicas = D(setup.data());
  const double tokens = D(setup.micro_batch) * D(setup.sequence) * D(setup.accumulate) * replicas;
  cost.seconds_per_token = cost.seconds / tokens * D(setup.gpus);
  return cost;
}

}  // namespace lowtide::plan
