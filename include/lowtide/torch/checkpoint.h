// Checkpoints of a LibTorch program, in the layout of docs/checkpoints.md: `lowtide checkpoint list|verify|show` reads them,
// and so does lowtide.checkpoint_file.read_file in Python. Included by lowtide/torch.h.
//
//   lowtide::Checkpointer checkpoints("checkpoints", *model, &optimizer);
//   uint64_t step = 0;
//   if (auto resumed = checkpoints.Resume()) step = resumed->step;
//   ...
//   checkpoints.Save(step);           // durable when it returns; then older ones go, the last three stay
//
// Saved: parameters and buffers, the optimizer's state and learning rates (Adam, AdamW, SGD, RMSprop, Adagrad), and the
// random number generators of the CPU and of every CUDA device. Nothing is pickled.
#pragma once

#include <dirent.h>
#include <sys/file.h>

#include <map>
#include <memory>
#include <optional>

#include "lowtide/checkpoint/image.h"

namespace lowtide {

// What Resume found. `damaged`: newer checkpoints that were passed over, and why.
struct Resumed {
  uint64_t step = 0, epoch = 0;
  std::string path;
  std::vector<std::string> damaged;
};

namespace torch_internal {

using Tensors = std::map<std::string, at::Tensor>;  // by name in the file

struct TypeName {
  at::ScalarType type;
  const char* name;
};
inline constexpr TypeName kTypeNames[] = {{at::kFloat, "F32"}, {at::kDouble, "F64"}, {at::kHalf, "F16"}, {at::kBFloat16, "BF16"},
                                          {at::kLong, "I64"},  {at::kInt, "I32"},    {at::kShort, "I16"}, {at::kChar, "I8"},
                                          {at::kByte, "U8"},   {at::kBool, "BOOL"},  {at::kComplexFloat, "C64"}};

inline const char* TypeNameOf(const std::string& tensor, at::ScalarType type) {
  for (const TypeName& known : kTypeNames) {
    if (known.type == type) return known.name;
  }
  throw std::runtime_error("cannot store " + tensor + ": tensors of type " + std::string(c10::toString(type)) + " have no form in a checkpoint");
}

// Calls tensor(name, at::Tensor&) and number(name, int64_t&) for what an optimizer keeps for one parameter.
template <typename TensorField, typename NumberField>
void VisitState(torch::optim::OptimizerParamState& state, TensorField tensor, NumberField number) {
  const auto adam = [&](auto& of) {
    number("step", of.step());
    tensor("exp_avg", of.exp_avg());
    tensor("exp_avg_sq", of.exp_avg_sq());
    tensor("max_exp_avg_sq", of.max_exp_avg_sq());
  };
  if (auto* of = dynamic_cast<torch::optim::AdamParamState*>(&state)) return adam(*of);
  if (auto* of = dynamic_cast<torch::optim::AdamWParamState*>(&state)) return adam(*of);
  if (auto* of = dynamic_cast<torch::optim::SGDParamState*>(&state)) return tensor("momentum_buffer", of->momentum_buffer());
  if (auto* of = dynamic_cast<torch::optim::RMSpropParamState*>(&state)) {
    number("step", of->step());
    tensor("square_avg", of->square_avg());
    tensor("momentum_buffer", of->momentum_buffer());
    tensor("grad_avg", of->grad_avg());
    return;
  }
  if (auto* of = dynamic_cast<torch::optim::AdagradParamState*>(&state)) {
    number("step", of->step());
    tensor("sum", of->sum());
    return;
  }
  throw std::runtime_error("this optimizer's state has no form in a checkpoint: Adam, AdamW, SGD, RMSprop and Adagrad have");
}

inline std::unique_ptr<torch::optim::OptimizerParamState> NewState(torch::optim::OptimizerOptions& options) {
  using namespace torch::optim;
  if (dynamic_cast<AdamOptions*>(&options)) return std::make_unique<AdamParamState>();
  if (dynamic_cast<AdamWOptions*>(&options)) return std::make_unique<AdamWParamState>();
  if (dynamic_cast<SGDOptions*>(&options)) return std::make_unique<SGDParamState>();
  if (dynamic_cast<RMSpropOptions*>(&options)) return std::make_unique<RMSpropParamState>();
  if (dynamic_cast<AdagradOptions*>(&options)) return std::make_unique<AdagradParamState>();
  throw std::runtime_error("this optimizer's state has no form in a checkpoint: Adam, AdamW, SGD, RMSprop and Adagrad have");
}

inline Tensors ModuleTensors(torch::nn::Module& model) {
  Tensors out;
  for (const auto& item : model.named_parameters()) out["model." + item.key()] = item.value();
  for (const auto& item : model.named_buffers()) out["model." + item.key()] = item.value();
  return out;
}

template <typename Visit>
void EachParameter(torch::optim::Optimizer& optimizer, Visit visit) {
  size_t number = 0;
  for (auto& group : optimizer.param_groups()) {
    for (at::Tensor& parameter : group.params()) visit("optimizer." + std::to_string(number++) + ".", parameter, group.options());
  }
}

inline at::Tensor Number(int64_t value) { return at::full({}, value, at::kLong); }

inline Tensors OptimizerTensors(torch::optim::Optimizer& optimizer) {
  Tensors out;
  EachParameter(optimizer, [&](const std::string& prefix, at::Tensor& parameter, torch::optim::OptimizerOptions&) {
    auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) return;
    VisitState(
        *found->second,
        [&](const char* name, at::Tensor& tensor) {
          if (tensor.defined()) out[prefix + name] = tensor;
        },
        [&](const char* name, int64_t& number) { out[prefix + name] = Number(number); });
  });
  std::vector<double> rates;
  for (auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  out["optimizer.lr"] = at::tensor(rates, at::kDouble);
  return out;
}

// Generators by name in the file.
inline std::map<std::string, at::Generator> Generators() {
  std::map<std::string, at::Generator> out{{"rng.torch", at::detail::getDefaultCPUGenerator()}};
  if (torch::cuda::is_available()) {
    for (size_t i = 0, count = static_cast<size_t>(torch::cuda::device_count()); i < count; ++i) {
      out["rng.cuda." + std::to_string(i)] = at::globalContext().defaultGenerator(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(i)));
    }
  }
  return out;
}

inline Tensors GeneratorTensors() {
  Tensors out;
  for (auto& [name, generator] : Generators()) {
    std::lock_guard<std::mutex> lock(generator.mutex());
    out[name] = generator.get_state();
  }
  return out;
}

// A piece of the state's JSON: {"name": {"$t": "part.name"}, ...}
inline std::string TreeOf(const Tensors& tensors, size_t prefix) {
  std::string out;
  for (const auto& item : tensors) {
    out += (out.empty() ? "" : ",") + checkpoint::Quoted(item.first.substr(prefix)) + ":{\"$t\":" + checkpoint::Quoted(item.first) + "}";
  }
  return "{" + out + "}";
}

}  // namespace torch_internal

// One per folder at a time, for a program of one process. Failures throw std::runtime_error: catch it around Save, and
// training goes on with the older checkpoints as they were.
class Checkpointer {
 public:
  // keep: committed checkpoints that stay.
  Checkpointer(std::string folder, torch::nn::Module& model, torch::optim::Optimizer* optimizer = nullptr, size_t keep = 3)
      : folder_(std::move(folder)), model_(model), optimizer_(optimizer), keep_(std::max<size_t>(keep, 1)) {
    ::mkdir(folder_.c_str(), 0777);
    Lock();
    for (const std::string& name : Names()) {
      if (name.compare(0, 5, ".tmp-") == 0) ::unlink((folder_ + "/" + name).c_str());
    }
  }
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;
  ~Checkpointer() {
    if (lock_ >= 0) ::close(lock_);
  }

  // Stored as step-<step>.safetensors; written, synced, renamed, the folder synced, and only then older ones removed.
  void Save(uint64_t step, uint64_t epoch = 0, const std::string& reason = "asked");
  // Loads the newest checkpoint that is whole, all of it or nothing. None when the folder has none. Throws when it is
  // another model's.
  std::optional<Resumed> Resume();

 private:
  void Lock();
  std::vector<std::string> Names() const;
  std::vector<std::string> Committed() const;  // names, oldest first
  static torch_internal::Tensors ReadAll(const checkpoint::FileReader& reader);
  void Apply(const std::string& path, const torch_internal::Tensors& stored);
  void ApplyOptimizer(const torch_internal::Tensors& stored);

  std::string folder_;
  torch::nn::Module& model_;
  torch::optim::Optimizer* optimizer_;
  size_t keep_;
  int lock_ = -1;
  checkpoint::Image image_;
};

// ---- implementation ----

inline void Checkpointer::Lock() {
  const std::string path = folder_ + "/.lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) throw std::runtime_error(path + ": cannot be made: " + std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    char owner[200] = {};
    const bool known = ::pread(lock_, owner, sizeof owner - 1, 0) > 0;
    ::close(lock_);
    lock_ = -1;
    throw std::runtime_error(folder_ + " is being written to by " + (known ? owner : "another process") + ": stop that run, or name another folder");
  }
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string self = "process " + std::to_string(::getpid()) + " on " + host + "\n";
  if (::ftruncate(lock_, 0) != 0 || ::pwrite(lock_, self.data(), self.size(), 0) < 0) return;  // who we are is a courtesy
}

inline std::vector<std::string> Checkpointer::Names() const {
  std::vector<std::string> out;
  DIR* directory = ::opendir(folder_.c_str());
  if (directory == nullptr) throw std::runtime_error(folder_ + ": cannot be listed: " + std::strerror(errno));
  while (const dirent* entry = ::readdir(directory)) out.emplace_back(entry->d_name);
  ::closedir(directory);
  return out;
}

inline std::vector<std::string> Checkpointer::Committed() const {
  std::vector<std::string> out;
  const std::string suffix = ".safetensors";
  for (const std::string& name : Names()) {
    if (name.size() != 5 + 12 + suffix.size() || name.compare(0, 5, "step-") != 0 || name.compare(17, suffix.size(), suffix) != 0) continue;
    if (name.find_first_not_of("0123456789", 5) == 17) out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

inline void Checkpointer::Save(uint64_t step, uint64_t epoch, const std::string& reason) {
  using namespace torch_internal;
  const Tensors model = ModuleTensors(model_), rng = GeneratorTensors();
  const Tensors optimizer = optimizer_ != nullptr ? OptimizerTensors(*optimizer_) : Tensors();
  std::vector<at::Tensor> alive;
  std::vector<checkpoint::Source> sources;
  for (const Tensors* part : {&model, &optimizer, &rng}) {
    for (const auto& [name, tensor] : *part) {
      const at::Tensor dense = tensor.detach().cpu().contiguous();
      alive.push_back(dense);
      sources.push_back({name, TypeNameOf(name, dense.scalar_type()), {dense.sizes().begin(), dense.sizes().end()}, dense.data_ptr(),
                         dense.nbytes(), static_cast<uint64_t>(dense.element_size())});
    }
  }
  const std::string tree = "{\"run\":{\"step\":" + std::to_string(step) + ",\"epoch\":" + std::to_string(epoch) +
                           ",\"world\":1,\"made_by\":{\"lowtide\":1,\"torch\":\"" TORCH_VERSION "\"}},\"model\":{\"\":" + TreeOf(model, 6) +
                           "},\"optimizer\":" + TreeOf(optimizer, 10) + ",\"rng\":" + TreeOf(rng, 4) + "}";
  image_.Fill(std::move(sources), tree, step, reason);
  char name[64];
  std::snprintf(name, sizeof name, "step-%012llu.safetensors", static_cast<unsigned long long>(step));
  const auto result = checkpoint::WriteFile(folder_, ".tmp-" + std::to_string(::getpid()) + "-" + name, name, image_.data(), image_.bytes(), {});
  if (result.error) throw std::runtime_error(folder_ + "/" + name + ": " + result.stage + ": " + std::strerror(result.error));
  const std::vector<std::string> committed = Committed();
  for (size_t i = 0; i + keep_ < committed.size(); ++i) ::unlink((folder_ + "/" + committed[i]).c_str());
}

inline std::optional<Resumed> Checkpointer::Resume() {
  std::vector<std::string> names = Committed();
  Resumed resumed;
  for (; !names.empty(); names.pop_back()) {
    resumed.path = folder_ + "/" + names.back();
    torch_internal::Tensors stored;
    try {
      const checkpoint::FileReader reader(resumed.path);
      stored = ReadAll(reader);
      resumed.step = reader.header().seal.step;
      const checkpoint::Json* run = reader.tree().Find("run");
      const checkpoint::Json* epoch = run != nullptr ? run->Find("epoch") : nullptr;
      resumed.epoch = epoch != nullptr ? epoch->number : 0;
    } catch (const std::runtime_error& error) {
      resumed.damaged.emplace_back(error.what());
      continue;
    }
    Apply(resumed.path, stored);
    return resumed;
  }
  return std::nullopt;
}

inline torch_internal::Tensors Checkpointer::ReadAll(const checkpoint::FileReader& reader) {
  torch_internal::Tensors out;
  for (const checkpoint::Tensor& tensor : reader.header().tensors) {
    const auto* type = std::find_if(std::begin(torch_internal::kTypeNames), std::end(torch_internal::kTypeNames),
                                    [&](const auto& known) { return tensor.dtype == known.name; });
    uint64_t bytes = tensor.end - tensor.begin, expected = type != std::end(torch_internal::kTypeNames) ? c10::elementSize(type->type) : 0;
    for (uint64_t size : tensor.shape) {
      if (__builtin_mul_overflow(expected, size, &expected)) expected = bytes + 1;
    }
    if (type == std::end(torch_internal::kTypeNames) || expected != bytes) throw std::runtime_error("the type or shape of " + tensor.name + " does not fit its data");
    const std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end());
    at::Tensor read = at::empty(shape, type->type);
    reader.Read(tensor, read.data_ptr());
    out[tensor.name] = read;
  }
  return out;
}

inline void Checkpointer::Apply(const std::string& path, const torch_internal::Tensors& stored) {
  std::string wrong;
  const torch_internal::Tensors model = torch_internal::ModuleTensors(model_);
  for (const auto& [name, tensor] : model) {
    const auto found = stored.find(name);
    if (found == stored.end()) {
      wrong += "\n  " + name + " is not in it";
    } else if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != tensor.scalar_type()) {
      wrong += "\n  " + name + " has another shape or type in it";
    }
  }
  for (const auto& item : stored) {
    if (item.first.compare(0, 6, "model.") == 0 && !model.count(item.first)) wrong += "\n  " + item.first + " is not in the model";
  }
  if (!wrong.empty()) throw std::runtime_error(path + " does not fit this model:" + wrong);
  torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model) at::Tensor(tensor).copy_(stored.at(name));
  if (optimizer_ != nullptr) ApplyOptimizer(stored);
  for (auto& [name, generator] : torch_internal::Generators()) {
    const auto found = stored.find(name);
    if (found == stored.end()) continue;
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(found->second);
  }
}

inline void Checkpointer::ApplyOptimizer(const torch_internal::Tensors& stored) {
  torch_internal::EachParameter(*optimizer_, [&](const std::string& prefix, at::Tensor& parameter, torch::optim::OptimizerOptions& options) {
    auto state = torch_internal::NewState(options);
    bool any = false;
    torch_internal::VisitState(
        *state,
        [&](const char* name, at::Tensor& tensor) {
          const auto found = stored.find(prefix + name);
          if (found == stored.end()) return;
          tensor = found->second.to(parameter.device()).clone();
          any = true;
        },
        [&](const char* name, int64_t& number) {
          const auto found = stored.find(prefix + name);
          if (found == stored.end()) return;
          number = found->second.item<int64_t>();
          any = true;
        });
    if (any) optimizer_->state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  });
  const auto rates = stored.find("optimizer.lr");
  if (rates == stored.end()) return;
  auto& groups = optimizer_->param_groups();
  for (size_t i = 0; i < groups.size() && static_cast<int64_t>(i) < rates->second.numel(); ++i) {
    groups[i].options().set_lr(rates->second[static_cast<int64_t>(i)].item<double>());
  }
}

}  // namespace lowtide
