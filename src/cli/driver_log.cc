#include "cli/driver_log.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>

#include "lowtide/record/host.h"

namespace lowtide::cli {
namespace {

constexpr int64_t kEveryNs = 5'000'000'000;
constexpr int kCuda = 1;

std::string FileFor(const std::filesystem::path& folder, const char* host) {
  return (folder / fmt::format("driver-{}.csv", host[0] ? host : "host")).string();
}

// CUDA_VISIBLE_DEVICES of a process as it was started; none when it is not set or cannot be seen.
std::optional<std::string> VisibleOf(int pid) {
  std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  constexpr std::string_view kName = "CUDA_VISIBLE_DEVICES=";
  for (size_t at = 0; at < text.size(); at = text.find('\0', at) + 1) {
    if (text.compare(at, kName.size(), kName) == 0) return text.c_str() + at + kName.size();
    if (text.find('\0', at) == std::string::npos) break;
  }
  return std::nullopt;
}

bool UsesDevice(const record::Ring& ring) {
  return std::any_of(std::begin(ring.header().devices), std::end(ring.header().devices),
                     [](const record::DeviceEntry& device) { return device.used && device.type == kCuda; });
}

}  // namespace

void DriverLog::Look(const std::vector<record::Ring*>& rings) noexcept {
  const int64_t now = record::MonotonicNs();
  if (now < next_ns_) return;
  try {
    std::vector<record::Ring*> users;
    std::copy_if(rings.begin(), rings.end(), std::back_inserter(users),
                 [](const record::Ring* ring) { return UsesDevice(*ring) && !ring->steps().empty(); });
    if (users.empty()) return;
    next_ns_ = now + kEveryNs;
    if (!tried_) driver_ = record::Nvml::Load();
    tried_ = true;
    if (!driver_) return;
    const std::vector<record::GpuFigures> devices = driver_->Read();
    std::string lines;
    for (const record::Ring* ring : users) lines += Lines(*ring, devices);
    if (lines.empty()) return;
    const int fd = ::open(FileFor(folder_, users[0]->header().hostname).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) return;
    [[maybe_unused]] const ssize_t written = ::write(fd, lines.data(), lines.size());
    ::close(fd);
  } catch (const std::exception&) {
    next_ns_ = now + kEveryNs;  // no memory just now; the rings tell what there is to tell
  }
}

std::string DriverLog::Lines(const record::Ring& ring, const std::vector<record::GpuFigures>& devices) {
  const auto named = VisibleOf(ring.header().pid);
  const std::vector<size_t> visible = record::VisibleDevices(named ? named->c_str() : nullptr, devices);
  std::string lines;
  for (const record::DeviceEntry& entry : ring.header().devices) {
    if (!entry.used || entry.type != kCuda || entry.index < 0 || static_cast<size_t>(entry.index) >= visible.size()) continue;
    const record::GpuFigures& gpu = devices[visible[static_cast<size_t>(entry.index)]];
    if (gpu.used_bytes == record::kAbsent) continue;
    lines += fmt::format("{},{},{},{},{}\n", record::MonotonicNs(), ring.header().pid, entry.index, gpu.used_bytes, gpu.total_bytes);
  }
  return lines;
}

std::vector<DriverSample> DriverReader::Read(const record::Ring& ring) {
  std::vector<DriverSample> samples;
  std::ifstream file(FileFor(std::filesystem::path(ring.path()).parent_path(), ring.header().hostname));
  if (!file.seekg(read_)) return samples;
  for (std::string line; std::getline(file, line) && !file.eof();) {  // a line without its end is still being written
    read_ += static_cast<std::streamoff>(line.size()) + 1;
    DriverSample sample;
    long long mono = 0, used = 0, total = 0;
    if (std::sscanf(line.c_str(), "%lld,%d,%d,%lld,%lld", &mono, &sample.pid, &sample.index, &used, &total) != 5) continue;
    if (sample.pid != ring.header().pid) continue;
    sample.mono_ns = mono, sample.used_bytes = used, sample.total_bytes = total;
    samples.push_back(sample);
  }
  return samples;
}

}  // namespace lowtide::cli
