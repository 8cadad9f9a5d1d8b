// lowtide for LibTorch programs: header-only, the only header that sees LibTorch.
//
//   lowtide::Gradients gradients(model->named_parameters());      // clips at 1.0
//   loss.backward();
//   auto report = gradients.Clip();                               // norm, largest, zeros, NaN of each; one read
//   if (report.finite()) optimizer.step();
//   std::cerr << lowtide::Memory().Text() << "\n";
//
//   lowtide::Recorder recorder;                                    // under `lowtide run -- ./train`, or ("folder")
//   recorder.Step();                                               // `lowtide watch`, `report` and `export` show the program
//   lowtide::Checkpointer checkpoints("checkpoints", *model, &optimizer);   // torch/checkpoint.h
//
// Needs LibTorch 2.0 or newer and C++17. CPU gradients go through the native pass (gradient_scan.h), others through
// at::_foreach_norm with one transfer.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <unistd.h>

#include "lowtide/gradient_scan.h"
#include "lowtide/recorder.h"
#include "lowtide/torch/checkpoint.h"

#if __has_include(<c10/cuda/CUDACachingAllocator.h>) && defined(LOWTIDE_WITH_CUDA)
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#define LOWTIDE_HAS_CUDA 1
#endif

namespace lowtide {

// One parameter's gradient.
struct GradientRow {
  std::string name;
  GradientScan scan;     // zeros is 0 where the gradient was not read by the native pass
  bool defined = false;  // it has a gradient
};

struct GradientReport {
  std::vector<GradientRow> rows;
  double total_norm = 0;   // L2 over all gradients, before clipping; NaN when one is not finite
  double clipped_to = 0;   // 0: nothing was scaled
  size_t damaged = 0;      // gradients with a NaN or an infinity

  bool finite() const { return damaged == 0; }
  // Names of the parameters whose gradient holds a NaN or an infinity.
  std::vector<std::string> NotFinite() const {
    std::vector<std::string> names;
    for (const GradientRow& row : rows) {
      if (!row.scan.finite()) names.push_back(row.name);
    }
    return names;
  }
};

namespace torch_internal {

inline bool ScanTypeOf(const at::Tensor& tensor, ScanType& type) {
  switch (tensor.scalar_type()) {
    case at::kFloat: type = ScanType::kFloat32; return true;
    case at::kDouble: type = ScanType::kFloat64; return true;
    case at::kBFloat16: type = ScanType::kBfloat16; return true;
    case at::kHalf: type = ScanType::kFloat16; return true;
    default: return false;
  }
}

inline bool Readable(const at::Tensor& gradient, ScanType& type) {
  return gradient.device().is_cpu() && gradient.layout() == at::kStrided && gradient.is_non_overlapping_and_dense() &&
         ScanTypeOf(gradient, type);
}

// For gradients elsewhere: norm and largest magnitude, one transfer.
inline GradientScan ScanElsewhere(const at::Tensor& gradient) {
  at::Tensor values = gradient.is_sparse() ? gradient.coalesce().values() : gradient;
  GradientScan scan;
  scan.count = static_cast<uint64_t>(values.numel());
  if (!scan.count) return scan;
  values = values.detach().to(at::kFloat);
  const at::Tensor both = at::stack({values.norm(), values.abs().max()}).cpu();
  const double norm = both[0].item<double>();
  scan.largest = both[1].item<double>();
  scan.sum_squares = norm * norm;
  scan.nans = std::isnan(scan.largest);
  scan.infinities = std::isinf(scan.largest);
  return scan;
}

}  // namespace torch_internal

// Diagnostics and clip for the parameters of a module (`model->named_parameters()`).
class Gradients {
 public:
  explicit Gradients(const torch::OrderedDict<std::string, at::Tensor>& parameters, double limit = 1.0) : limit_(limit) {
    for (const auto& item : parameters) parameters_.emplace_back(item.key(), item.value());
  }

  // Reads every gradient once; changes nothing.
  GradientReport Check() const {
    GradientReport report;
    double sum = 0;
    for (const auto& [name, parameter] : parameters_) {
      GradientRow row;
      row.name = name;
      const at::Tensor gradient = parameter.grad();
      if (gradient.defined()) {
        ScanType type;
        row.defined = true;
        row.scan = torch_internal::Readable(gradient, type)
                       ? ScanGradient(gradient.data_ptr(), static_cast<size_t>(gradient.numel()), type)
                       : torch_internal::ScanElsewhere(gradient);
        sum += row.scan.sum_squares;
        report.damaged += !row.scan.finite();
      }
      report.rows.push_back(std::move(row));
    }
    report.total_norm = report.damaged ? NAN : std::sqrt(sum);
    return report;
  }

  // Checks, and scales the gradients when their norm is above the limit. Gradients that are not finite are left alone.
  GradientReport Clip() const {
    GradientReport report = Check();
    if (!report.finite() || report.total_norm <= limit_) return report;
    const double factor = limit_ / (report.total_norm + 1e-6);
    torch::NoGradGuard no_grad;
    for (const auto& item : parameters_) {
      at::Tensor gradient = item.second.grad();
      if (gradient.defined()) gradient.mul_(factor);
    }
    report.clipped_to = limit_;
    return report;
  }

 private:
  std::vector<std::pair<std::string, at::Tensor>> parameters_;
  double limit_;
};

// Bytes, -1 where a figure does not exist.
struct MemoryReport {
  int64_t rss = -1, heap = -1;                            // resident set; C heap in use
  int64_t allocated = -1, reserved = -1, peak = -1;       // a device's caching allocator
  int64_t fragmented = -1;                                // reserved and not allocated

  std::string Text() const {
    std::string out;
    auto add = [&](const char* name, int64_t bytes) {
      if (bytes < 0) return;
      char text[64];
      std::snprintf(text, sizeof text, "%s%s %.1f MB", out.empty() ? "" : ", ", name, static_cast<double>(bytes) / 1e6);
      out += text;
    };
    add("rss", rss);
    add("heap", heap);
    add("allocated", allocated);
    add("reserved", reserved);
    add("peak", peak);
    add("fragmented", fragmented);
    return out;
  }
};

// This process's figures; with LOWTIDE_WITH_CUDA defined, also those of CUDA device `device`.
inline MemoryReport Memory(int device = 0) {
  MemoryReport report;
  long pages = 0, resident = 0;
  std::ifstream statm("/proc/self/statm");
  if (statm >> pages >> resident) report.rss = static_cast<int64_t>(resident) * ::sysconf(_SC_PAGESIZE);
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  const struct mallinfo2 info = ::mallinfo2();
  report.heap = static_cast<int64_t>(info.uordblks + info.hblkhd);
#endif
#if defined(LOWTIDE_HAS_CUDA)
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  report.allocated = stats.allocated_bytes[0].current;
  report.reserved = stats.reserved_bytes[0].current;
  report.peak = stats.allocated_bytes[0].peak;
  report.fragmented = report.reserved - report.allocated;
#else
  (void)device;
#endif
  return report;
}

namespace torch_internal {

// Figures of the CUDA devices that were used, in the order of their first use.
inline int CudaFigures(DeviceFigures* figures, int most) noexcept {
#if defined(LOWTIDE_HAS_CUDA)
  try {
    static DeviceFigures known[record::kMaxDevices];
    static int used = 0;
    if (!c10::cuda::CUDACachingAllocator::get()->initialized()) return 0;
    for (int index = 0; index < c10::cuda::device_count() && used < static_cast<int>(record::kMaxDevices); ++index) {
      if (std::any_of(known, known + used, [&](const DeviceFigures& one) { return one.index == index; })) continue;
      const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(index));
      if (stats.reserved_bytes[0].peak == 0) continue;
      DeviceFigures& device = known[used++];
      device.index = index;
      cudaDeviceProp properties;
      if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) continue;  // the size stays unknown
      device.total = static_cast<int64_t>(properties.totalGlobalMem);
      std::snprintf(device.name, sizeof device.name, "%s", properties.name);
    }
    const int count = std::min(used, most);
    for (int i = 0; i < count; ++i) {
      const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(known[i].index));
      known[i].allocated = stats.allocated_bytes[0].current;
      known[i].reserved = stats.reserved_bytes[0].current;
      known[i].peak = stats.allocated_bytes[0].peak;
      figures[i] = known[i];
    }
    return count;
  } catch (...) {
    return 0;
  }
#else
  (void)figures, (void)most;
  return 0;
#endif
}

inline RecorderOptions WithTorch() noexcept {
  RecorderOptions options;
  options.library_version = TORCH_VERSION;
#if defined(LOWTIDE_HAS_CUDA)
  options.devices = &CudaFigures;
#endif
  return options;
}

}  // namespace torch_internal

// recorder.h's, with the figures of CUDA devices where LOWTIDE_WITH_CUDA is defined.
class Recorder : public StepRecorder {
 public:
  Recorder() noexcept : StepRecorder(torch_internal::WithTorch()) {}
  explicit Recorder(const std::string& folder) noexcept : StepRecorder(folder, torch_internal::WithTorch()) {}
};

}  // namespace lowtide
