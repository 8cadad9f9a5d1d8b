#include "cli/plan.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "cli/color.h"
#include "cli/plan_measure.h"
#include "plan/config.h"
#include "plan/plan.h"
#include "report/plan_report.h"

namespace lowtide::cli {
namespace {

using namespace plan;

// "7B", "1.3b", "350M", "8030261248".
double ParseCount(const char* option, const std::string& text) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  double factor = 0;
  for (auto [names, scale] : std::initializer_list<std::pair<const char*, double>>{{"", 1}, {"kK", 1e3}, {"mM", 1e6}, {"bBgG", 1e9}, {"tT", 1e12}}) {
    if (unit.empty() ? *names == 0 : unit.size() == 1 && std::string(names).find(unit) != std::string::npos) factor = scale;
  }
  if (end == text.c_str() || factor == 0 || !(value > 0) || !std::isfinite(value * factor)) {
    throw Error(fmt::format("{} {} is no count of parameters", option, text), "write 7B, 350M or the number itself");
  }
  return value * factor;
}

template <typename T>
T Choose(const char* option, const std::string& word, std::initializer_list<std::pair<const char*, T>> choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (word == name) return value;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw Error(fmt::format("{} has no choice {}", option, word), "choose one of " + names);
}

void SetSizes(const PlanOptions& options, Shape& shape) {
  auto set = [](uint64_t given, uint64_t& size) {
    if (given) size = given;
  };
  set(options.layers, shape.layers);
  set(options.hidden, shape.hidden);
  set(options.heads, shape.heads);
  set(options.kv_heads, shape.kv_heads);
  set(options.head_dim, shape.head_dim);
  set(options.ffn, shape.ffn);
  set(options.vocab, shape.vocab);
  set(options.experts, shape.experts.count);
  set(options.experts_per_token, shape.experts.per_token);
  set(options.expert_ffn, shape.experts.ffn);
  if (shape.experts.count && !shape.experts.per_token) shape.experts.per_token = std::min<uint64_t>(2, shape.experts.count);
  if (shape.experts.count && !shape.experts.ffn) shape.experts.ffn = shape.ffn;
  if (options.tied) shape.tied = *options.tied;
}

bool ModelGiven(const PlanOptions& options) {
  return !options.model.empty() || !options.params.empty() || (options.layers && options.hidden);
}

// Without a parameter count the sizes say it: layers and hidden size are the least.
Shape FromSizes(const PlanOptions& options) {
  Shape shape;
  shape.name = "model";
  SetSizes(options, shape);
  if (!options.params.empty()) {
    const double parameters = ParseCount("--params", options.params);
    shape.name = options.params;
    shape = GuessShape(parameters, shape);
    if (options.layers && options.hidden) shape.exact_parameters = static_cast<uint64_t>(parameters);
    return shape;
  }
  const double about = 12.0 * static_cast<double>(options.layers) * static_cast<double>(options.hidden) * static_cast<double>(options.hidden);
  shape = GuessShape(std::min(std::max(about, 1e4), 1e15), shape);
  shape.exact_parameters = 0;
  if (!options.tied) shape.tied = false;
  return shape;
}

Shape ModelOf(const PlanOptions& options) {
  if (options.model.empty()) return FromSizes(options);
  const Shape* preset = FindPreset(options.model);
  const bool is_file = ::access(options.model.c_str(), F_OK) == 0;
  Shape shape = preset && !is_file ? *preset : ReadConfig(options.model);
  SetSizes(options, shape);
  if (!options.params.empty()) shape.exact_parameters = static_cast<uint64_t>(std::min(ParseCount("--params", options.params), 1e15));
  return shape;
}

Strategy StrategyOf(const PlanOptions& options) {
  if (options.strategy.empty()) {
    if (options.pp > 1 || options.tp > 1) return Strategy::kMegatron;
    return options.gpus > 1 ? Strategy::kFsdp : Strategy::kSingle;
  }
  return Choose<Strategy>("--strategy", options.strategy,
                          {{"single", Strategy::kSingle}, {"ddp", Strategy::kDdp}, {"zero1", Strategy::kZero1}, {"zero2", Strategy::kZero2},
                           {"zero3", Strategy::kZero3}, {"fsdp", Strategy::kFsdp}, {"hsdp", Strategy::kHsdp}, {"megatron", Strategy::kMegatron}});
}

void SetPrecision(const PlanOptions& options, Setup& setup) {
  using W = Weights;
  setup.weights = Choose<W>("--precision", options.precision.empty() ? "bf16" : options.precision,
                            {{"bf16", W::kMixed}, {"fp16", W::kMixed}, {"fp8", W::kMixed}, {"fp32", W::kFp32}, {"bf16-pure", W::kPure}, {"fp16-pure", W::kPure},
                             {"fp8-pure", W::kPure}, {"bf16-master", W::kMaster}, {"fp16-master", W::kMaster}, {"fp8-master", W::kMaster}});
  setup.fp8 = options.precision.starts_with("fp8");
  const bool master = setup.strategy == Strategy::kZero1 || setup.strategy == Strategy::kZero2 || setup.strategy == Strategy::kZero3 || setup.strategy == Strategy::kMegatron;
  if (setup.weights == W::kMixed && master) setup.weights = W::kMaster;
}

void SetParallel(const PlanOptions& options, Setup& setup) {
  setup.strategy = StrategyOf(options);
  setup.gpus = options.gpus;
  setup.gpus_per_node = options.gpus_per_node;
  setup.tensor = options.tp;
  setup.pipeline = options.pp;
  setup.context = options.cp;
  setup.expert = options.ep;
  setup.shard = options.shard;
  if (setup.strategy == Strategy::kHsdp && !setup.shard) setup.shard = std::min(options.gpus, options.gpus_per_node);
  setup.sequence_parallel = options.sequence_parallel;
  setup.distributed_optimizer = options.distributed_optimizer;
  const std::string offload = Choose<std::string>("--offload", options.offload, {{"none", "none"}, {"optimizer", "optimizer"}, {"parameters", "parameters"}, {"all", "all"}});
  setup.offload_optimizer = offload == "optimizer" || offload == "all";
  setup.offload_parameters = offload == "parameters" || offload == "all";
  if (setup.offload_parameters && !setup.fully_sharded()) {
    throw Error(fmt::format("--offload {} moves weights, which --strategy {} keeps on the GPU", offload, options.strategy.empty() ? "(none given)" : options.strategy),
                "use zero3 or fsdp, or --offload optimizer");
  }
  if (setup.offload_parameters && setup.torch_sharded()) setup.offload_optimizer = true;  // FSDP's CPUOffload moves all
}

void SetCode(const PlanOptions& options, Setup& setup) {
  if (!options.checkpoint.empty()) {
    setup.recompute = Choose<Recompute>("--checkpoint", options.checkpoint,
                                        {{"none", Recompute::kNone}, {"selective", Recompute::kSelective}, {"full", Recompute::kFull}, {"offload", Recompute::kOffload}});
  }
  setup.code = setup.strategy == Strategy::kMegatron ? Code::kFused : Code::kEager;
  if (!options.code.empty()) setup.code = Choose<Code>("--code", options.code, {{"eager", Code::kEager}, {"compile", Code::kCompile}, {"fused", Code::kFused}});
  if (!options.logits.empty()) setup.logits = Choose<Logits>("--logits", options.logits, {{"whole", Logits::kWhole}, {"fused", Logits::kFused}, {"chunked", Logits::kChunked}});
  setup.flash = Choose<bool>("--attention", options.attention, {{"flash", true}, {"eager", false}});
}

Setup SetupOf(const PlanOptions& options) {
  Setup setup;
  SetParallel(options, setup);
  SetPrecision(options, setup);
  SetCode(options, setup);
  using O = Optimizer;
  setup.optimizer = Choose<O>("--optimizer", options.optimizer.empty() ? "adamw" : options.optimizer,
                              {{"adamw", O::kAdamW}, {"adam", O::kAdamW}, {"adam8bit", O::kAdam8bit}, {"sgd", O::kSgd}, {"momentum", O::kMomentum},
                               {"adafactor", O::kAdafactor}, {"lion", O::kLion}, {"muon", O::kMuon}});
  setup.optimizer_in_backward = options.optimizer_in_backward;
  setup.step = options.foreach ? StepKind::kForeach : StepKind::kFused;
  setup.micro_batch = options.micro_batch.value_or(1);
  setup.sequence = options.seq_len ? options.seq_len : 2048;
  setup.accumulate = options.accumulate;
  setup.lora_rank = options.lora_rank;
  setup.base_bits = options.base_bits;
  if (!(setup.base_bits > 0) || setup.base_bits > 32) throw Error(fmt::format("--base-bits is {}", setup.base_bits), "give the bits of a frozen weight, such as 16, 8 or 4");
  setup.states_only = options.states_only;
  setup.deepspeed_counting = Choose<bool>("--counting", options.counting, {{"lowtide", false}, {"deepspeed", true}});
  if (!options.largest_layer.empty()) setup.largest_layer = ParseCount("--largest-layer", options.largest_layer);
  return setup;
}

void SetGpu(const PlanOptions& options, Request& request) {
  if (!options.gpu.empty()) {
    const Gpu* gpu = FindGpu(options.gpu);
    if (!gpu) throw Error(fmt::format("--gpu {} is not known", options.gpu), "choose one of " + GpuNames() + ", or give --gpu-memory 80GiB");
    request.gpu = *gpu;
    request.capacity = gpu->memory;
  }
  if (options.gpu_memory) request.capacity = static_cast<double>(options.gpu_memory);
  if (request.capacity > 1e15) throw Error(fmt::format("--gpu-memory is {}", FormatBytes(request.capacity)), "give the memory of one GPU, such as 80GiB");
}

Request RequestOf(const PlanOptions& options) {
  Request request;
  request.setup = SetupOf(options);
  request.strategy_given = !options.strategy.empty() || options.tp > 1 || options.pp > 1 || options.cp > 1 || options.ep > 1 || options.offload != "none";
  request.recompute_given = !options.checkpoint.empty();
  request.code_given = !options.code.empty();
  request.sequence_given = options.seq_len > 0;
  SetGpu(options, request);
  if (ModelGiven(options)) {
    request.shape = ModelOf(options);
  } else if (!options.measure) {
    throw Error("which model?", "give a config.json, a known name such as llama3.1-8b, --params 7B, or --measure train.py");
  }
  return request;
}

}  // namespace

int Plan(const PlanOptions& options, const CommonOptions& common) {
  Request request = RequestOf(options);
  std::optional<Measured> measured;
  if (options.measure) measured = Measure(options, common, request, ModelGiven(options));
  plan::Plan made = MakePlan(request);
  if (!request.sequence_given && request.shape.kind != Kind::kVision && !measured) {
    made.notes.push_back({fmt::format("sequences of {} tokens, since --seq-len is not given", request.setup.sequence),
                          fmt::format("未给出 --seq-len，按 {} 个 token 的序列计算", request.setup.sequence)});
  }
  made.measured = std::move(measured);
  if (options.format == "json") {
    fmt::print("{}", report::PlanToJson(made));
  } else {
    fmt::print("{}", report::PlanToText(made, TerminalFor(1, common), common.lang));
  }
  return 0;
}

}  // namespace lowtide::cli
