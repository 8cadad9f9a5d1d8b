#include "record/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

namespace lowtide::record {
namespace {

// From NVIDIA's NVML API Reference; only what is used here.
using Device = void*;
constexpr int kSuccess = 0;
struct Memory {
  unsigned long long total, free, used;
};

}  // namespace

struct Nvml::Functions {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;

  template <typename Function>
  bool Find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    return function != nullptr;
  }
  bool FindAll() {
    const bool needed = Find(init, "nvmlInit_v2") && Find(count, "nvmlDeviceGetCount_v2") &&
                        Find(by_index, "nvmlDeviceGetHandleByIndex_v2") && Find(memory, "nvmlDeviceGetMemoryInfo");
    Find(shutdown, "nvmlShutdown");
    Find(name, "nvmlDeviceGetName");
    Find(uuid, "nvmlDeviceGetUUID");
    return needed;
  }
};

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() {
  if (functions_->shutdown != nullptr) functions_->shutdown();
  ::dlclose(functions_->library);
}

std::unique_ptr<Nvml> Nvml::Load(const char* library) {
  auto functions = std::make_unique<Functions>();
  functions->library = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (functions->library == nullptr) return nullptr;
  if (!functions->FindAll() || functions->init() != kSuccess) {
    ::dlclose(functions->library);
    return nullptr;
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions)));
}

std::vector<GpuFigures> Nvml::Read() const {
  unsigned count = 0;
  std::vector<GpuFigures> devices;
  if (functions_->count(&count) != kSuccess) return devices;
  for (unsigned i = 0; i < std::min(count, 64u); ++i) {
    GpuFigures& gpu = devices.emplace_back();
    gpu.index = static_cast<int>(i);
    Device device = nullptr;
    if (functions_->by_index(i, &device) != kSuccess) continue;
    Memory memory{};
    if (functions_->memory(device, &memory) == kSuccess) {
      gpu.used_bytes = static_cast<int64_t>(memory.used);
      gpu.total_bytes = static_cast<int64_t>(memory.total);
    }
    char text[96] = {};
    if (functions_->name != nullptr && functions_->name(device, text, sizeof(text) - 1) == kSuccess) gpu.name = text;
    if (functions_->uuid != nullptr && functions_->uuid(device, text, sizeof(text) - 1) == kSuccess) gpu.uuid = text;
  }
  return devices;
}

std::vector<size_t> VisibleDevices(const char* visible, const std::vector<GpuFigures>& devices) {
  std::vector<size_t> out;
  if (visible == nullptr) {
    for (size_t i = 0; i < devices.size(); ++i) out.push_back(i);
    return out;
  }
  std::string rest = visible;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    std::string word = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    word.erase(0, word.find_first_not_of(' '));
    char* end = nullptr;
    const long number = std::strtol(word.c_str(), &end, 10);
    auto fits = [&](const GpuFigures& gpu) {
      return !word.empty() && (end != word.c_str() && *end == 0 ? gpu.index == number : gpu.uuid.starts_with(word));
    };
    const auto found = std::find_if(devices.begin(), devices.end(), fits);
    if (found == devices.end()) break;
    out.push_back(static_cast<size_t>(found - devices.begin()));
  }
  return out;
}

}  // namespace lowtide::record
