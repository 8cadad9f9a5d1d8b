#include "snapshot/call_sites.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace lowtide::snapshot {
namespace {

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string Slashed(std::string_view file) {
  std::string out(file);
  std::replace(out.begin(), out.end(), '\\', '/');
  return out;
}

// C++ frames that every stack has: the unwinder, the allocator, the dispatcher and the interpreter.
bool IsPlumbing(std::string_view name) {
  static constexpr std::array kParts = {"torch::unwind",
                                        "CapturedTraceback",
                                        "gather_with_cpp",
                                        "CUDACachingAllocator",
                                        "c10::Dispatcher",
                                        "c10::impl::",
                                        "_PyEval",
                                        "PyEval_",
                                        "_PyObject",
                                        "PyObject_",
                                        "_PyFunction",
                                        "PyRun_",
                                        "Py_RunMain",
                                        "Py_BytesMain",
                                        "__libc_start",
                                        "_start",
                                        "THPVariable",
                                        "c10::KernelFunction",
                                        "std::_Function",
                                        "method_vectorcall",
                                        "at::detail::empty_",
                                        "c10::StorageImpl",
                                        "alloc_cpu",
                                        "PyVectorcall",
                                        "slot_tp_call",
                                        "clone3",
                                        "start_thread",
                                        "thread_start",
                                        "cfunction_"};
  return name.empty() ||
         std::any_of(kParts.begin(), kParts.end(), [&](const char* part) { return Contains(name, part); });
}

// "at::_ops::addmm::call(...)" -> "addmm"; "torch::autograd::generated::MmBackward0::apply(...)" ->
// "MmBackward0".
std::string OperatorOf(std::string_view name) {
  for (std::string_view prefix : {"at::_ops::", "torch::autograd::generated::"}) {
    const size_t at = name.find(prefix);
    if (at == std::string_view::npos) continue;
    std::string_view rest = name.substr(at + prefix.size());
    const size_t end = rest.find("::");
    if (end != std::string_view::npos && end > 0) return std::string(rest.substr(0, end));
  }
  if (Contains(name, "AccumulateGrad")) return "AccumulateGrad";
  return {};
}

uint32_t PythonTraits(std::string_view file, std::string_view name) {
  uint32_t traits = CallSite::kPython;
  if (Contains(file, "torch/optim/") || (name == "step" && Contains(file, "optim")))
    traits |= CallSite::kOptimizer;
  if (Contains(name, "zero_grad")) traits |= CallSite::kZeroGrad;
  if (name == "_engine_run_backward" ||
      (name == "backward" && (Contains(file, "torch/_tensor.py") || Contains(file, "torch/autograd/")))) {
    traits |= CallSite::kBackward;
  }
  if (name == "_call_impl" || name == "_wrapped_call_impl" || name == "forward") traits |= CallSite::kForward;
  if ((Contains(file, "torch/nn/modules/") &&
       (name == "__init__" || name == "_apply" || name == "convert" || name == "to" || name == "cuda" ||
        name == "reset_parameters")) ||
      Contains(name, "load_state_dict") || Contains(name, "from_pretrained") ||
      Contains(name, "load_checkpoint")) {
    traits |= CallSite::kInit;
  }
  if (Contains(file, "torch/utils/checkpoint.py")) traits |= CallSite::kCheckpoint;
  if (Contains(file, "torch/distributed/") && !Contains(file, "fsdp")) traits |= CallSite::kCommunication;
  if (Contains(file, "torchinductor_") || Contains(file, "torch/_inductor/") ||
      Contains(file, "<eval_with_key>"))
    traits |= CallSite::kCompiled;
  return traits;
}

uint32_t NativeTraits(std::string_view name) {
  uint32_t traits = 0;
  if (Contains(name, "torch::autograd::Engine") || Contains(name, "Backward0::apply") ||
      Contains(name, "torch::autograd::generated")) {
    traits |= CallSite::kBackward;
  }
  if (Contains(name, "AccumulateGrad")) traits |= CallSite::kAccumulate | CallSite::kBackward;
  if (Contains(name, "ProcessGroupNCCL") || Contains(name, "c10d::")) traits |= CallSite::kCommunication;
  return traits;
}

CallSite Describe(const Snapshot& snapshot, StackId stack) {
  CallSite site;
  const Frame* user = nullptr;
  const Frame* library = nullptr;
  const Frame* native = nullptr;
  bool via_open = true;
  for (uint32_t id : snapshot.names.stack(stack)) {
    const Frame& frame = snapshot.names.frame(id);
    const std::string_view name = snapshot.names.text(frame.name);
    const std::string file = Slashed(snapshot.names.text(frame.file));
    if (IsPythonFile(file)) {
      site.traits |= PythonTraits(file, name);
      if (!user && !IsLibraryFile(file)) user = &frame;
      if (!library) library = &frame;
      via_open = false;
      continue;
    }
    site.traits |= NativeTraits(name);
    if (!native && !IsPlumbing(name)) native = &frame;
    if (via_open || site.op.empty()) {
      std::string op = OperatorOf(name);
      if (!op.empty()) site.op = std::move(op);  // the outermost operator below the Python code names it best
    }
  }
  const Frame* shown = user ? user : library;
  if (shown) {
    site.file = std::string(snapshot.names.text(shown->file));
    site.line = shown->line;
    site.function = std::string(snapshot.names.text(shown->name));
    site.label = fmt::format("{}:{} {}", ShortPath(site.file), site.line, site.function);
    if (library && library != shown) {
      site.via = fmt::format("{}:{} {}", ShortPath(snapshot.names.text(library->file)), library->line,
                             snapshot.names.text(library->name));
    }
  } else if (site.traits & CallSite::kBackward) {
    site.label = site.op.empty() ? "backward (autograd thread)"
                                 : fmt::format("backward: {} (autograd thread)", site.op);
  } else if (native) {
    std::string_view name = snapshot.names.text(native->name);
    site.label = std::string(name.substr(0, std::min(name.find('('), size_t{100})));
  } else {
    site.label = "no stack recorded";
  }
  return site;
}

}  // namespace

bool IsPythonFile(std::string_view file) {
  return file.ends_with(".py") || (!file.empty() && file.front() == '<') || Contains(file, "ipykernel_") ||
         file.ends_with(".pyx");
}

bool IsLibraryFile(std::string_view original) {
  const std::string file = Slashed(original);
  for (std::string_view part :
       {"site-packages/", "dist-packages/", "/torch/", "<frozen", "<string>", "<eval_with_key>",
        "/lib/python3", "torchinductor_", "/Lib/", "<__array_function__"}) {
    if (Contains(file, part)) return true;
  }
  return file.starts_with("torch/");
}

std::string ShortPath(std::string_view original) {
  const std::string file = Slashed(original);
  for (std::string_view part : {"site-packages/", "dist-packages/"}) {
    const size_t at = file.rfind(part);
    if (at != std::string::npos) return file.substr(at + part.size());
  }
  size_t at = file.rfind('/');
  if (at == std::string::npos || at == 0) return file;
  return file.substr(at + 1);
}

const CallSite& CallSites::Of(StackId stack) {
  if (!made_[stack]) {
    sites_[stack] = Describe(snapshot_, stack);
    made_[stack] = true;
  }
  return sites_[stack];
}

std::vector<uint32_t> CallSites::Shown(StackId stack, size_t most) const {
  std::vector<uint32_t> user, library, native;
  for (uint32_t id : snapshot_.names.stack(stack)) {
    const Frame& frame = snapshot_.names.frame(id);
    const std::string_view file = snapshot_.names.text(frame.file);
    if (!IsPythonFile(file)) {
      if (native.size() < 4 && !IsPlumbing(snapshot_.names.text(frame.name))) native.push_back(id);
    } else {
      (IsLibraryFile(file) ? library : user).push_back(id);
    }
  }
  std::vector<uint32_t> shown = user;
  shown.insert(shown.end(), library.begin(), library.end());
  shown.insert(shown.end(), native.begin(), native.end());
  if (shown.size() > most) shown.resize(most);
  return shown;
}

}  // namespace lowtide::snapshot
