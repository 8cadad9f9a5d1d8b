#include "plan/candidates.h"

#include <algorithm>

#include "base/error.h"

namespace lowtide::plan {
namespace {

bool Possible(const Setup& setup, const Shape& shape) {
  try {
    CheckSetup(setup, shape);
    return true;
  } catch (const Error&) {
    return false;
  }
}

class Enumerator {
 public:
  explicit Enumerator(const Request& request) : request_(request), base_(request.setup) {
    base_.tensor = base_.pipeline = base_.context = base_.expert = 1;
    base_.shard = 0;
    base_.sequence_parallel = base_.distributed_optimizer = base_.offload_optimizer = base_.offload_parameters = base_.deepspeed_counting = false;
  }

  std::vector<Variant> All() {
    if (base_.gpus == 1) {
      OneGpu();
    } else {
      DataParallel();
      if (base_.measured_per_sample) return std::move(variants_);  // nothing is known of the layers
      Tensor();
      Pipeline();
      Context();
      ExpertParallel();
    }
    return std::move(variants_);
  }

 private:
  // With 16-bit compute, DeepSpeed and Megatron keep 16-bit weights and fp32 copies; others fp32 weights.
  Setup With(Strategy strategy) const {
    Setup setup = base_;
    setup.strategy = strategy;
    const bool master = strategy == Strategy::kZero1 || strategy == Strategy::kZero2 || strategy == Strategy::kZero3 || strategy == Strategy::kMegatron;
    if (setup.weights == Weights::kMixed && master) setup.weights = Weights::kMaster;
    if (setup.weights == Weights::kMaster && !master) setup.weights = Weights::kMixed;
    return setup;
  }

  // One entry for each way to recompute; the user's own when it was given. Groups that share a batch take more micro
  // batches each, so that all variants train on the same number of sequences a step.
  void Add(const std::string& kind, Setup setup) {
    setup.accumulate = base_.accumulate * setup.tensor * setup.pipeline * setup.context;
    if (!Possible(setup, request_.shape)) return;
    for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      if (request_.recompute_given && recompute != request_.setup.recompute) continue;
      if (setup.measured_per_sample && recompute != Recompute::kNone) continue;  // measured without recomputing
      Setup variant = setup;
      variant.recompute = recompute;
      variants_.push_back({kind, variant});
    }
    if (request_.recompute_given && request_.setup.recompute == Recompute::kOffload) {
      variants_.push_back({kind, setup});
      variants_.back().setup.recompute = Recompute::kOffload;
    }
  }

  void OneGpu() {
    Add("single", With(Strategy::kSingle));
    Setup offload = With(Strategy::kZero2);
    offload.offload_optimizer = true;
    Add("zero2-offload", offload);
    Setup all = With(Strategy::kZero3);
    all.offload_optimizer = all.offload_parameters = true;
    Add("zero3-offload", all);
  }

  void DataParallel() {
    Add("ddp", With(Strategy::kDdp));
    Add("zero1", With(Strategy::kZero1));
    Add("zero2", With(Strategy::kZero2));
    Add("fsdp", With(Strategy::kFsdp));
    if (base_.gpus > base_.gpus_per_node && base_.gpus % base_.gpus_per_node == 0) {
      Setup hybrid = With(Strategy::kHsdp);
      hybrid.shard = base_.gpus_per_node;
      Add("hsdp", hybrid);
    }
    Setup offload = With(Strategy::kZero2);
    offload.offload_optimizer = true;
    Add("zero2-offload", offload);
    Setup all = With(Strategy::kFsdp);
    all.offload_optimizer = all.offload_parameters = true;
    Add("fsdp-offload", all);
  }

  Setup Fused(Setup setup) const {  // tensor and pipeline parallelism come with libraries that have fused kernels
    if (!request_.code_given) setup.code = Code::kFused;
    return setup;
  }

  void Tensor() {
    for (uint64_t t = 2; t <= std::min<uint64_t>(8, base_.gpus_per_node); t *= 2) {
      Setup setup = Fused(With(Strategy::kFsdp));
      setup.tensor = t;
      setup.sequence_parallel = true;
      Add("tp-fsdp", setup);
    }
  }

  void Pipeline() {
    for (uint64_t p = 1; p <= 32; p *= 2) {
      for (uint64_t t = 1; t <= std::min<uint64_t>(8, base_.gpus_per_node); t *= 2) {
        if (p == 1 && t == 1) continue;
        Setup setup = Fused(With(Strategy::kMegatron));
        setup.tensor = t;
        setup.pipeline = p;
        setup.sequence_parallel = t > 1;
        setup.distributed_optimizer = true;
        if (p > 1 && (request_.shape.layers + request_.shape.encoder_layers) % p) continue;
        Add(p == 1 ? "tp-dp" : t == 1 ? "pp-dp" : "tp-pp-dp", setup);
      }
    }
  }

  void Context() {
    if (base_.sequence < 16384) return;
    for (uint64_t c = 2; c <= std::min<uint64_t>(64, base_.gpus); c *= 2) {
      Setup setup = With(Strategy::kFsdp);
      setup.context = c;
      Add("cp-fsdp", setup);
    }
  }

  void ExpertParallel() {
    if (!request_.shape.experts.count) return;
    for (uint64_t e = 2; e <= std::min(request_.shape.experts.count, base_.gpus); e *= 2) {
      Setup setup = With(Strategy::kFsdp);
      setup.expert = e;
      Add("ep-fsdp", setup);
    }
  }

  const Request& request_;
  Setup base_;
  std::vector<Variant> variants_;
};

}  // namespace

std::vector<Variant> Variants(const Request& request) { return Enumerator(request).All(); }

Variant PopularVariant(const Request& request, double parameters, std::string* name) {
  const bool sharded = parameters >= 7e9 && parameters <= 70e9;
  std::string kind = parameters < 7e9 ? request.setup.gpus > 1 ? "ddp" : "single" : sharded ? "fsdp-offload" : "tp-pp-dp";
  *name = parameters < 7e9 ? "DDP" : sharded ? "FSDP + CPU offload" : "TP + PP";
  std::vector<Variant> all = Variants(request);
  Variant best{"", request.setup};
  for (const Variant& variant : all) {
    const bool wanted = variant.kind == kind || (kind == "fsdp-offload" && variant.kind == "zero3-offload") || (kind == "tp-pp-dp" && best.kind.empty() && variant.kind == "tp-dp");
    // Articles mean the whole node for tensor parallelism, and say nothing of recomputation: none, where it is ours to choose.
    if (wanted && (best.kind != variant.kind || (variant.kind == "tp-pp-dp" && variant.setup.tensor * variant.setup.pipeline > best.setup.tensor * best.setup.pipeline))) best = variant;
  }
  return best;
}

}  // namespace lowtide::plan
