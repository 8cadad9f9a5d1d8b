#include "plan/gpus.h"

#include <cctype>

namespace lowtide::plan {
namespace {

constexpr double kGiB = 1073741824.0;

// Makers' data sheets; memory as PyTorch reports it, a little under the nominal size.
constexpr Gpu kGpus[] = {
    {"h100", 79.1 * kGiB, 989e12, 450e9, 50e9, 55e9},     {"h200", 139.8 * kGiB, 989e12, 450e9, 50e9, 55e9},
    {"b200", 178.3 * kGiB, 2250e12, 900e9, 50e9, 55e9},   {"a100-80", 79.1 * kGiB, 312e12, 300e9, 25e9, 25e9},
    {"a100-40", 39.4 * kGiB, 312e12, 300e9, 25e9, 25e9},  {"v100-32", 31.7 * kGiB, 125e12, 150e9, 12e9, 12e9},
    {"v100-16", 15.7 * kGiB, 125e12, 150e9, 12e9, 12e9},  {"l40s", 44.4 * kGiB, 362e12, 25e9, 12e9, 25e9},
    {"4090", 23.6 * kGiB, 165e12, 20e9, 3e9, 25e9},       {"3090", 23.6 * kGiB, 71e12, 20e9, 3e9, 20e9},
    {"t4", 14.6 * kGiB, 65e12, 10e9, 3e9, 12e9},          {"mi300x", 191.9 * kGiB, 1307e12, 448e9, 50e9, 55e9},
};

std::string Plainly(const std::string& name) {
  std::string plain;
  for (unsigned char c : name) {
    if (std::isalnum(c)) plain += static_cast<char>(std::tolower(c));
  }
  if (plain == "a100") return "a10080";
  if (plain == "v100") return "v10032";
  return plain.starts_with("rtx") ? plain.substr(3) : plain;
}

}  // namespace

const Gpu kUnknownGpu = {"gpu", 0, 312e12, 300e9, 25e9, 25e9};

const Gpu* FindGpu(const std::string& name) {
  const std::string wanted = Plainly(name);
  for (const Gpu& gpu : kGpus) {
    if (Plainly(gpu.name) == wanted) return &gpu;
  }
  return nullptr;
}

std::string GpuNames() {
  std::string names;
  for (const Gpu& gpu : kGpus) names += (names.empty() ? "" : ", ") + std::string(gpu.name);
  return names;
}

}  // namespace lowtide::plan
