#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lowtide/record/ring_format.h"

namespace lowtide::record {

struct GpuFigures {
  int index = 0;                  // the driver's numbering
  std::string name, uuid;
  int64_t used_bytes = kAbsent, total_bytes = kAbsent;
};

// The driver's own account of the devices (nvmlDeviceGetMemoryInfo), by dlopen: nothing is linked, and a machine
// without a driver simply has no devices. To be used from outside the training process, every ten seconds or so: the
// driver may hold a lock for milliseconds.
class Nvml {
 public:
  // Null when there is no such library or it does not start.
  static std::unique_ptr<Nvml> Load(const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // What every device holds now; a device that does not answer has absent figures.
  std::vector<GpuFigures> Read() const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  std::unique_ptr<Functions> functions_;
};

// Which of the driver's devices a process sees as cuda:0, cuda:1 ...: the value of its CUDA_VISIBLE_DEVICES (null:
// not set) read as the CUDA runtime does, up to the first entry that fits no device. Indexes into `devices`.
std::vector<size_t> VisibleDevices(const char* visible, const std::vector<GpuFigures>& devices);

}  // namespace lowtide::record
