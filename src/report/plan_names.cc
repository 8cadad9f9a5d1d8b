#include "report/plan_names.h"

#include <iterator>

namespace lowtide::report {

using namespace plan;

template <size_t N, typename Enum>
static const char* At(const char* const (&names)[N], Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < N ? names[index] : "";
}

const char* StrategyWord(Strategy strategy) {
  static const char* const names[] = {"single", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "megatron"};
  return At(names, strategy);
}

const char* PrecisionWord(const Setup& setup) {
  switch (setup.weights) {
    case Weights::kFp32: return "fp32";
    case Weights::kPure: return setup.fp8 ? "fp8-pure" : "bf16-pure";
    case Weights::kMaster: return setup.fp8 ? "fp8-master" : "bf16-master";
    case Weights::kMixed: break;
  }
  return setup.fp8 ? "fp8" : "bf16";
}

const char* OptimizerWord(Optimizer optimizer) {
  static const char* const names[] = {"adamw", "adam8bit", "sgd", "momentum", "adafactor", "lion", "muon"};
  return At(names, optimizer);
}

const char* RecomputeWord(Recompute recompute) {
  static const char* const names[] = {"none", "selective", "full", "offload"};
  return At(names, recompute);
}

const char* CodeWord(Code code) {
  static const char* const names[] = {"eager", "compile", "fused"};
  return At(names, code);
}

const char* LogitsWord(Logits logits) {
  static const char* const names[] = {"whole", "fused", "chunked"};
  return At(names, logits);
}

}  // namespace lowtide::report
