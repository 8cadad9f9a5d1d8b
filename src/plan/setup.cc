#include "plan/setup.h"

#include <fmt/core.h>

#include "base/error.h"

namespace lowtide::plan {
namespace {

void Limit(const char* option, uint64_t value, uint64_t most) {
  if (value >= 1 && value <= most) return;
  throw Error(fmt::format("{} is {}", option, value), fmt::format("give a number from 1 to {}", most));
}

void CheckNumbers(const Setup& setup) {
  Limit("--gpus", setup.gpus, 1000000);
  Limit("--gpus-per-node", setup.gpus_per_node, 1024);
  Limit("--tp", setup.tensor, 4096);
  Limit("--pp", setup.pipeline, 4096);
  Limit("--cp", setup.context, 4096);
  Limit("--ep", setup.expert, 4096);
  Limit("--micro-batch", setup.micro_batch, 1000000);
  Limit("--seq-len", setup.sequence, 100000000);
  Limit("--accumulate", setup.accumulate, 1000000);
  if (setup.lora_rank > 65536) throw Error(fmt::format("--lora-rank is {}", setup.lora_rank), "give a rank from 1 to 65536");
}

void CheckGroups(const Setup& setup) {
  const uint64_t group = setup.tensor * setup.pipeline * setup.context;
  if (setup.gpus % group) {
    throw Error(fmt::format("{} GPUs cannot be split into groups of tp {} x pp {} x cp {} = {}", setup.gpus, setup.tensor,
                            setup.pipeline, setup.context, group),
                fmt::format("choose --gpus as a multiple of {}, or smaller groups", group));
  }
  const uint64_t data = setup.data() * setup.context;
  if (setup.expert > 1 && data % setup.expert && setup.expert % data) {
    throw Error(fmt::format("{} data-parallel GPUs cannot be split over --ep {}", data, setup.expert), "choose --ep as a divisor of the data-parallel GPUs");
  }
  if (setup.shard && data % setup.shard) {
    throw Error(fmt::format("{} data-parallel GPUs cannot be split into shard groups of {}", data, setup.shard), "choose --shard as a divisor of the data-parallel GPUs");
  }
  if (setup.strategy == Strategy::kSingle && setup.gpus > 1) {
    throw Error(fmt::format("--strategy single uses one GPU, not {}", setup.gpus), "choose ddp, zero1, zero2, zero3, fsdp, hsdp or megatron, or --gpus 1");
  }
}

void CheckFits(const Setup& setup, const Shape& shape) {
  if (shape.heads % setup.tensor) {
    throw Error(fmt::format("{} attention heads cannot be split over --tp {}", shape.heads, setup.tensor),
                fmt::format("choose --tp as a divisor of {}", shape.heads));
  }
  const uint64_t layers = shape.layers + shape.encoder_layers;
  if (setup.pipeline > layers) {
    throw Error(fmt::format("{} layers make no {} pipeline stages", layers, setup.pipeline), fmt::format("choose --pp of at most {}", layers));
  }
  if (setup.sequence % setup.context) {
    throw Error(fmt::format("a sequence of {} cannot be split over --cp {}", setup.sequence, setup.context), "choose --cp as a divisor of --seq-len");
  }
  if (setup.expert > 1 && !shape.experts.count) throw Error("--ep splits experts, and this model has none", "leave --ep out");
  if (setup.expert > 1 && shape.experts.count % setup.expert) {
    throw Error(fmt::format("{} experts cannot be split over --ep {}", shape.experts.count, setup.expert), fmt::format("choose --ep as a divisor of {}", shape.experts.count));
  }
}

const char* Name(Strategy strategy) {
  switch (strategy) {
    case Strategy::kSingle: return "single GPU";
    case Strategy::kDdp: return "DDP";
    case Strategy::kZero1: return "ZeRO-1";
    case Strategy::kZero2: return "ZeRO-2";
    case Strategy::kZero3: return "ZeRO-3";
    case Strategy::kFsdp: return "FSDP";
    case Strategy::kHsdp: return "HSDP";
    case Strategy::kMegatron: return "";
  }
  return "";
}

}  // namespace

uint64_t Setup::shards() const {
  const uint64_t all = data() * context;
  if (strategy == Strategy::kSingle || strategy == Strategy::kDdp) return 1;
  if (strategy == Strategy::kMegatron && !distributed_optimizer) return 1;
  return shard ? shard : all;
}

std::string Describe(const Setup& setup, bool chinese) {
  std::string text;
  auto add = [&](const std::string& part) { text += (text.empty() ? "" : " x ") + part; };
  if (setup.tensor > 1) add(fmt::format("TP{}", setup.tensor));
  if (setup.pipeline > 1) add(fmt::format("PP{}", setup.pipeline));
  if (setup.context > 1) add(fmt::format("CP{}", setup.context));
  if (setup.expert > 1) add(fmt::format("EP{}", setup.expert));
  if (setup.strategy == Strategy::kMegatron) {
    if (setup.data() > 1) add(setup.distributed_optimizer ? fmt::format(fmt::runtime(chinese ? "DP{}（分布式优化器）" : "DP{} (distributed optimizer)"), setup.data()) : fmt::format("DP{}", setup.data()));
  } else if (setup.strategy == Strategy::kHsdp) {
    add(fmt::format(fmt::runtime(chinese ? "HSDP（{} 个分片）" : "HSDP ({} shards)"), setup.shards()));
  } else {
    add(setup.strategy == Strategy::kSingle && chinese ? "单 GPU" : Name(setup.strategy));
  }
  if (setup.offload_parameters) {
    text += chinese ? "，状态放在 CPU" : ", states on the CPU";
  } else if (setup.offload_optimizer) {
    text += chinese ? "，优化器放在 CPU" : ", optimizer on the CPU";
  }
  return !text.empty() ? text : chinese ? "单 GPU" : "single GPU";
}

void CheckSetup(const Setup& setup, const Shape& shape) {
  CheckNumbers(setup);
  CheckGroups(setup);
  CheckFits(setup, shape);
}

StateBytes BytesPerParameter(const Setup& setup, double matrix_share, double rows_share) {
  StateBytes bytes;
  const bool half = setup.weights == Weights::kPure;
  bytes.compute = setup.weights == Weights::kFp32 ? 4 : 2;
  bytes.weight = setup.weights == Weights::kMaster || half ? 2 : 4;
  bytes.gradient = setup.strategy == Strategy::kMegatron && setup.weights != Weights::kFp32 ? 4 : bytes.weight;
  bytes.reduce = setup.torch_sharded() && !half ? 4 : bytes.weight;
  bytes.master = setup.weights == Weights::kMaster ? 4 : 0;
  const double state = half ? 2 : 4;
  switch (setup.optimizer) {
    case Optimizer::kAdamW: bytes.optimizer = 2 * state; break;
    case Optimizer::kAdam8bit: bytes.optimizer = 2 + 2 * 4.0 / 256; break;  // one fp32 scale per block of 256
    case Optimizer::kSgd: bytes.optimizer = 0; break;
    case Optimizer::kMomentum:
    case Optimizer::kLion: bytes.optimizer = state; break;
    case Optimizer::kAdafactor: bytes.optimizer = 4 * rows_share; break;
    case Optimizer::kMuon: bytes.optimizer = state * matrix_share + 2 * state * (1 - matrix_share); break;
  }
  return bytes;
}

}  // namespace lowtide::plan
