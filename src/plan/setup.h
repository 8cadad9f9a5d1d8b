#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plan/shape.h"

namespace lowtide::plan {

// Who keeps which part of the states. kMegatron: one process group per tensor and pipeline stage, fp32 main gradients.
enum class Strategy { kSingle, kDdp, kZero1, kZero2, kZero3, kFsdp, kHsdp, kMegatron };
// kMixed: 16-bit compute over fp32 weights (autocast, FSDP's mixed precision). kMaster: 16-bit weights, fp32 copies in the
// optimizer (DeepSpeed, Megatron). kPure: everything in 16 bits.
enum class Weights { kFp32, kMixed, kMaster, kPure };
enum class Optimizer { kAdamW, kAdam8bit, kSgd, kMomentum, kAdafactor, kLion, kMuon };
enum class Recompute { kNone, kSelective, kFull, kOffload };
// How the model's code keeps activations. kEager: norms and activations written in Python, one kernel per operation (Hugging
// Face, torchtune). kCompile: fused by torch.compile. kFused: hand-fused kernels (Transformer Engine, Liger, Apex).
enum class Code { kEager, kCompile, kFused };
enum class Logits { kWhole, kFused, kChunked };
enum class StepKind { kFused, kForeach };

struct Setup {
  Strategy strategy = Strategy::kSingle;
  uint64_t gpus = 1, gpus_per_node = 8;
  uint64_t tensor = 1, pipeline = 1, context = 1, expert = 1;
  uint64_t shard = 0;                 // GPUs that share one copy of the states; 0: all of a data-parallel group
  bool sequence_parallel = false;     // norms' inputs split over the tensor-parallel GPUs
  bool distributed_optimizer = false; // Megatron's
  bool offload_optimizer = false, offload_parameters = false;
  Weights weights = Weights::kMixed;
  bool fp8 = false;                   // matrix products in 8 bits; states and kept activations as without
  Optimizer optimizer = Optimizer::kAdamW;
  bool optimizer_in_backward = false;
  StepKind step = StepKind::kFused;
  Recompute recompute = Recompute::kNone;
  Code code = Code::kEager;
  std::optional<Logits> logits;       // not given: as `code` has it
  bool flash = true;                  // attention without its s x s matrix
  uint64_t micro_batch = 1, sequence = 2048, accumulate = 1;
  uint64_t lora_rank = 0;             // 0: all parameters are trained
  double base_bits = 16;              // of the frozen base under LoRA
  bool cuda = true;                   // false: on the CPU, without the libraries' workspaces
  bool states_only = false;           // nothing but parameters, gradients, optimizer
  bool deepspeed_counting = false;    // states as DeepSpeed's own estimators count them
  double largest_layer = 0;           // parameters; 0: as the shape says
  double activation_ratio = 1;        // measured / predicted, of what is no state
  std::optional<double> measured_per_sample;  // bytes of activations per sample, where no shape explains them
  double measured_fixed = 0;          // bytes beside states that do not depend on the batch

  uint64_t data() const { return gpus / (tensor * pipeline * context); }
  // GPUs over which the states are split (1: not at all).
  uint64_t shards() const;
  bool fully_sharded() const { return strategy == Strategy::kZero3 || strategy == Strategy::kFsdp || strategy == Strategy::kHsdp; }
  bool torch_sharded() const { return strategy == Strategy::kFsdp || strategy == Strategy::kHsdp; }
  Logits logits_kind() const { return logits.value_or(code == Code::kFused ? Logits::kFused : Logits::kWhole); }
  double tokens() const {  // of one micro batch on one GPU
    return static_cast<double>(micro_batch) * static_cast<double>(sequence) / static_cast<double>(context);
  }
};

// "ddp", "FSDP", "TP8 x PP4 x ZeRO-1": as people write it.
std::string Describe(const Setup& setup, bool chinese = false);

// Throws Error when the setup cannot be run for this model: sizes that do not divide, numbers out of range.
void CheckSetup(const Setup& setup, const Shape& shape);

// Bytes per trained parameter (of weights as kept on the GPU; compute copies apart).
struct StateBytes {
  double weight = 0, gradient = 0, master = 0, optimizer = 0;
  double compute = 2;  // bytes of a number in a forward pass
  double reduce = 2;   // of a gradient while it is reduced
};
// `matrix_share`: the part of the parameters that are matrices inside layers (Muon treats them alone); `rows_share`: numbers
// that Adafactor keeps per parameter.
StateBytes BytesPerParameter(const Setup& setup, double matrix_share, double rows_share);

}  // namespace lowtide::plan
