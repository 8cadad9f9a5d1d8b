#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "record/nvml.h"
#include "record/ring_reader.h"

namespace lowtide::cli {

// The driver's figure of one device at one moment, from outside the process that uses it.
struct DriverSample {
  int64_t mono_ns = 0;
  int pid = 0;
  int index = 0;  // as the process numbers its devices
  int64_t used_bytes = 0, total_bytes = 0;
};

// Asks the driver (NVML) what the devices of a live run hold and keeps it in driver-<host>.csv of the run's folder, for
// the pool device-other: what lies on a device beside the process's own allocator (contexts, NCCL, other processes).
class DriverLog {
 public:
  explicit DriverLog(std::string folder) : folder_(std::move(folder)) {}

  // `rings`: of all processes on this machine. Asks every five seconds, once one of them uses a device. Never throws.
  void Look(const std::vector<record::Ring*>& rings) noexcept;

 private:
  static std::string Lines(const record::Ring& ring, const std::vector<record::GpuFigures>& devices);

  std::string folder_;
  std::unique_ptr<record::Nvml> driver_;
  bool tried_ = false;
  int64_t next_ns_ = 0;
};

// Follows the samples of one process, as they come.
class DriverReader {
 public:
  // What was written since the last call; nothing where no driver was asked.
  std::vector<DriverSample> Read(const record::Ring& ring);

 private:
  std::streamoff read_ = 0;
};

}  // namespace lowtide::cli
