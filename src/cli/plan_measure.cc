#include "cli/plan_measure.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/launch.h"
#include "cli/run.h"
#include "plan/config.h"
#include "record/ring_reader.h"

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace plan;

// A folder of its own in the temporary directory, gone at the end.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "lowtide-plan-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw Error("cannot make a temporary folder", "set TMPDIR to a folder that can be written", name);
    path_ = name;
  }
  ~Scratch() {
    std::error_code error;
    for (const std::string& file : record::ListRings(path_)) fs::remove(fs::canonical(file, error), error);
    fs::remove_all(path_, error);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Peaks {
  std::string pool;
  uint64_t steps = 0;
  double peak = 0, steady = 0;
};

// The first step makes the optimizer's states and warms caches: the highest of the later ones counts.
template <typename Record>
void Take(const std::vector<Record>& records, int64_t Record::*now, int64_t Record::*peak, Peaks& peaks) {
  bool first = true;
  const bool later = !records.empty() && records.back().step > 1;
  for (const Record& record : records) {
    if ((later && record.step < 2) || record.*peak < 0) continue;
    peaks.peak = std::max(peaks.peak, static_cast<double>(record.*peak));
    const double value = static_cast<double>(record.*now);
    peaks.steady = first ? value : std::min(peaks.steady, value);
    first = false;
  }
}

// A device's pool where it was used, else the CPU's tensors.
Peaks PeaksOf(const record::Ring& ring) {
  Peaks device, cpu{"cpu", 0, 0, 0};
  std::vector<record::DeviceRecord> first;
  for (const record::DeviceRecord& record : ring.devices()) {
    if (first.empty() || record.pool == first[0].pool) first.push_back(record);
  }
  if (!first.empty()) {
    device.pool = record::DeviceName(first[0].type, first[0].index);
    Take(first, &record::DeviceRecord::allocated_bytes, &record::DeviceRecord::peak_bytes, device);
  }
  Take(ring.steps(), &record::StepRecord::cpu_bytes, &record::StepRecord::cpu_peak_bytes, cpu);
  Peaks& best = device.peak > 0 ? device : cpu;
  best.steps = ring.steps().empty() ? 0 : ring.steps().back().step;
  return best;
}

Peaks HighestRank(const std::string& folder) {
  Peaks highest;
  for (const std::string& file : record::ListRings(folder)) {
    record::Ring ring = record::Ring::Open(file);
    ring.Refresh();
    if (ring.steps().empty()) continue;
    Peaks peaks = PeaksOf(ring);
    if (peaks.peak > highest.peak) highest = peaks;
  }
  return highest;
}

json ReadNotes(const std::string& folder) {
  const std::string path = folder + "/plan-rank0.json";
  if (!fs::exists(path)) return json::object();
  json notes = json::parse(ReadFile(path), nullptr, false);
  return notes.is_object() ? notes : json::object();
}

std::optional<double> Number(const json& notes, const char* key) {
  auto at = notes.find(key);
  return at != notes.end() && at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
}

std::string Word(const json& notes, const char* key) {
  auto at = notes.find(key);
  return at != notes.end() && at->is_string() ? at->get<std::string>() : std::string();
}

bool Flag(const json& notes, const char* key) {
  auto at = notes.find(key);
  return at != notes.end() && at->is_boolean() && at->get<bool>();
}

void ReadInput(const json& notes, Measured& measured) {
  auto input = notes.find("input");
  if (input == notes.end() || !input->is_array() || input->empty() || !(*input)[0].is_number_unsigned()) return;
  measured.micro_batch = std::max<uint64_t>(1, (*input)[0].get<uint64_t>());
  if (Flag(notes, "token_input") && input->size() > 1 && (*input)[1].is_number_unsigned()) measured.sequence = std::max<uint64_t>(1, (*input)[1].get<uint64_t>());
}

std::optional<Optimizer> OptimizerOf(const std::string& name) {
  struct Known {
    const char* part;
    Optimizer optimizer;
  };
  for (const Known& known : {Known{"8bit", Optimizer::kAdam8bit}, {"Adafactor", Optimizer::kAdafactor}, {"Adam", Optimizer::kAdamW},
                             {"Lion", Optimizer::kLion}, {"Muon", Optimizer::kMuon}, {"SGD", Optimizer::kSgd}}) {
    if (name.find(known.part) != std::string::npos) return known.optimizer;
  }
  return std::nullopt;
}

// The setup as it ran: one GPU (or the CPU), precision and optimizer as seen, whatever the plan is for.
Setup RunSetup(const json& notes, const Measured& measured, const PlanOptions& options, const Setup& asked) {
  Setup setup = asked;
  setup.strategy = Strategy::kSingle;
  setup.gpus = setup.tensor = setup.pipeline = setup.context = setup.expert = 1;
  setup.shard = 0;
  setup.offload_optimizer = setup.offload_parameters = setup.sequence_parallel = false;
  setup.accumulate = 1;
  setup.cuda = measured.pool.starts_with("cuda");
  if (measured.micro_batch) setup.micro_batch = *measured.micro_batch;
  if (measured.sequence) setup.sequence = *measured.sequence;
  if (options.checkpoint.empty() && Flag(notes, "checkpointing")) setup.recompute = Recompute::kFull;
  const double per_weight = measured.parameters && *measured.parameters > 0 ? Number(notes, "parameter_bytes").value_or(0) / *measured.parameters : 4;
  setup.weights = per_weight < 3 ? Weights::kPure : Flag(notes, "autocast") ? Weights::kMixed : Weights::kFp32;
  if (auto optimizer = OptimizerOf(Word(notes, "optimizer"))) {
    setup.optimizer = *optimizer;
    if (*optimizer == Optimizer::kSgd && measured.optimizer.value_or(0) > 0) setup.optimizer = Optimizer::kMomentum;
  }
  return setup;
}

// Takes over what the user left open.
void Adopt(const Setup& ran, const PlanOptions& options, const Measured& measured, Request& request) {
  Setup& setup = request.setup;
  if (!options.micro_batch && measured.micro_batch) setup.micro_batch = *measured.micro_batch;
  if (!options.seq_len && measured.sequence) setup.sequence = *measured.sequence;
  if (options.optimizer.empty()) setup.optimizer = ran.optimizer;
  if (options.precision.empty()) setup.weights = ran.weights;
  if (options.precision.empty() && ran.weights == Weights::kMixed && setup.strategy != Strategy::kSingle && setup.strategy != Strategy::kDdp && !setup.torch_sharded()) {
    setup.weights = Weights::kMaster;
  }
}

// The model as the script built it, where the user named none.
Shape ShapeOf(const json& notes, const std::string& script) {
  json model = json::object();
  for (const char* key : {"name", "parameters", "trainable", "parameter_bytes", "config"}) {
    if (notes.contains(key)) model[key] = notes[key];
  }
  if (!notes.contains("parameters")) {
    throw Error("no optimizer step was seen, so that the model is not known", "name the model as well: lowtide plan config.json ... --measure SCRIPT", script);
  }
  return ParseConfig(json{{"lowtide_model", model}}.dump(-1, ' ', false, json::error_handler_t::replace), script);
}

// The factor on activations that makes the predicted peak the measured one; the peak grows with it.
double SolveRatio(const Shape& shape, Setup setup, double peak) {
  double low = 0, high = 1000;
  for (int i = 0; i < 60; ++i) {
    setup.activation_ratio = (low + high) / 2;
    (Predict(shape, setup).Peak() < peak ? low : high) = setup.activation_ratio;
  }
  return (low + high) / 2;
}

double StatesOf(const Estimate& estimate) {
  const StageMemory& stage = estimate.Worst();
  double sum = 0;
  for (const char* id : {"weights", "frozen weights", "master weights", "optimizer"}) sum += stage.Part(id);
  return sum;
}

void Calibrate(const Setup& ran, Measured& measured, Request& request) {
  const double states = measured.weights.value_or(0) + measured.optimizer.value_or(0);
  measured.dynamic = std::max(0.0, measured.peak - states);
  const Setup setup = ran;
  const Estimate before = Predict(request.shape, setup);
  const StageMemory& stage = before.Worst();
  measured.predicted_weights = stage.Part("weights") + stage.Part("frozen weights");
  measured.predicted_optimizer = stage.Part("optimizer") + stage.Part("master weights");
  for (const Term& term : stage.terms) measured.predicted_gradients += term.id == "gradients" ? term.bytes[kBackwardEnd] : 0;
  if (!request.shape.sizes_known) {
    request.shape.assumed.clear();
    request.setup.measured_per_sample = measured.dynamic / static_cast<double>(measured.micro_batch.value_or(1));
    measured.notes.push_back({"this model's layers are not known to lowtide: its activations are planned as measured, per sample, and strategies that split layers are left out",
                              "lowtide 不了解此模型的层结构：激活值按每样本的实测值规划，且不考虑切分层的策略"});
    return;
  }
  measured.predicted_peak = before.Peak();
  measured.predicted_dynamic = before.Peak() - StatesOf(before);
  const double ratio = SolveRatio(request.shape, setup, measured.peak);
  measured.ratio = ratio;
  request.setup.activation_ratio = std::clamp(ratio, 0.05, 20.0);
  if (ratio < 0.05 || ratio > 20) {
    measured.notes.push_back({fmt::format("a ratio of {:.2g} says that the script does something else than the plan's model: it is applied as {:.2g} at most", ratio, request.setup.activation_ratio),
                              fmt::format("比值 {:.2g} 说明脚本所做的与计划的模型不同：仅按 {:.2g} 应用", ratio, request.setup.activation_ratio)});
  }
}

void AddHonesty(const json& notes, Measured& measured) {
  if (measured.pool == "cpu") {
    measured.notes.push_back({"measured on the CPU: tensors only, data set included; kernels of a GPU keep other temporaries",
                              "在 CPU 上测得：仅张量，包含数据集；GPU 内核的临时内存不同"});
  }
  if (!notes.contains("parameters")) {
    measured.notes.push_back({"no torch.optim step was seen: weights and optimizer could not be told apart", "没有看到 torch.optim 的更新：无法区分权重和优化器"});
  }
}

}  // namespace

Measured Measure(const PlanOptions& options, const CommonOptions& common, Request& request, bool model_given) {
  if (options.command[0].starts_with("-")) throw Error("--measure takes a script", "lowtide plan [OPTIONS] --measure train.py [ARGS]", options.command[0]);
  if (!fs::exists(options.command[0])) throw Error("no such script", "lowtide plan [OPTIONS] --measure train.py [ARGS]", options.command[0]);
  Scratch scratch;
  RunOptions run;
  run.folder = scratch.path();
  run.python = options.python;
  run.steps = options.steps;
  run.quiet = run.force = true;
  run.census = false;
  run.command = options.command;
  run.command.insert(run.command.begin(), FindPackage(FindPython(options.python)) + "/_plan_measure.py");
  const int code = Run(run, common);
  const Peaks peaks = HighestRank(scratch.path());
  if (peaks.steps == 0 || peaks.peak <= 0) {
    throw Error(fmt::format("no training step was recorded (the script ended with code {})", code),
                "does it train on its own with these arguments? lowtide run SCRIPT says what is seen", options.command[0]);
  }
  const json notes = ReadNotes(scratch.path());
  Measured measured{peaks.steps, peaks.pool, peaks.peak, peaks.steady, Number(notes, "parameters"), Number(notes, "trainable"), Number(notes, "weight_bytes"),
                    Number(notes, "gradient_bytes"), Number(notes, "optimizer_bytes"), {}, {}, 0, 0, 0, 0, 0, 0, {}, {}};
  ReadInput(notes, measured);
  if (!model_given) request.shape = ShapeOf(notes, options.command[0]);
  const Setup ran = RunSetup(notes, measured, options, request.setup);
  Adopt(ran, options, measured, request);
  Calibrate(ran, measured, request);
  AddHonesty(notes, measured);
  return measured;
}

}  // namespace lowtide::cli
