#include "cli/doctor.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/color.h"
#include "cli/launch.h"
#include "finding/version.h"
#include "record/ring_reader.h"

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;

enum class Status { kOk, kPartly, kMissing };

struct Check {
  std::string name;
  Status status;
  std::string detail;  // what was found
  std::string remedy;  // what follows from it, or what to do; empty when all is well
};

const char* Word(Status status) { return status == Status::kOk ? "ok" : status == Status::kPartly ? "partly" : "missing"; }

// Runs in the interpreter that scripts would run in; its ring says what was hooked.
constexpr const char* kProbe = R"(
import sys
try:
    import torch
except ImportError:
    sys.exit(3)
kept = torch.ones(1000)
import lowtide
lowtide.step()
)";

// The interpreter's own tracebacks do not belong into the doctor's output.
int RunQuietly(Launch launch) {
  launch.argv.insert(launch.argv.begin(), {"/bin/sh", "-c", "exec \"$@\" >/dev/null 2>&1 </dev/null", "sh"});
  Child child(launch);
  while (!child.Wait(1000)) {
  }
  return child.exit_code();
}

struct Probe {
  int exit_code = 0;
  std::optional<record::FileHeader> header;
};

Probe RunProbe(const std::string& python, const std::string& package) {
  std::string folder = (fs::temp_directory_path() / fmt::format("lowtide-doctor-{}", ::getpid())).string();
  fs::create_directories(folder);
  const char* path = std::getenv("PYTHONPATH");
  Launch launch{{python, "-c", kProbe},
                {{"PYTHONPATH", package + "/_inject" + (path && *path ? std::string(":") + path : "")},
                 {"LOWTIDE_RUN_DIR", folder}}};
  Probe probe;
  probe.exit_code = RunQuietly(launch);
  for (const std::string& file : record::ListRings(folder)) {
    record::Ring ring = record::Ring::Open(file);
    ring.Refresh();
    if (!probe.header || ring.header().torch_version[0]) probe.header = ring.header();
  }
  std::error_code error;
  for (const std::string& file : record::ListRings(folder)) fs::remove(fs::canonical(file, error), error);
  fs::remove_all(folder, error);
  return probe;
}

void AddTorch(const Probe& probe, const std::string& python, std::vector<Check>& checks) {
  if (probe.exit_code == 3) {
    checks.push_back({"PyTorch", Status::kMissing, fmt::format("{} cannot import torch", python),
                      "activate the environment of the training script, or name its interpreter with --python"});
    return;
  }
  if (!probe.header) {
    checks.push_back({"recording", Status::kMissing, fmt::format("no ring file came from {} (exit code {})", python, probe.exit_code),
                      "is lowtide installed for this interpreter's version? pip install lowtide into its environment"});
    return;
  }
  const record::FileHeader& header = *probe.header;
  uint64_t found = header.capabilities;
  checks.push_back({"interpreter", Status::kOk, fmt::format("Python {} at {}", header.python_version, python), ""});
  checks.push_back({"PyTorch", Status::kOk, header.torch_version, ""});
  bool alloc = found & record::kCapAllocCpu, free = found & record::kCapFreeCpu;
  checks.push_back({"CPU tensor bytes", alloc && free ? Status::kOk : Status::kMissing,
                    alloc && free ? fmt::format("counted exactly at c10::alloc_cpu / free_cpu ({})", found & record::kCapTrailer ? "sizes beside each block" : "sizes in a table")
                                  : "this PyTorch has no slot for c10::alloc_cpu / free_cpu",
                    alloc && free ? "" : "the C heap's figures stand in: growth is seen, its share in tensors is not"});
  checks.push_back({"device and shared-memory bytes", found & record::kCapReport ? Status::kOk : Status::kMissing,
                    found & record::kCapReport ? "met at c10::reportMemoryUsageToProfiler" : "no slot for c10::reportMemoryUsageToProfiler",
                    found & record::kCapReport ? "" : "device figures come from PyTorch's statistics, without dates of birth"});
  checks.push_back({"device allocator", found & record::kCapDeviceReport ? Status::kOk : Status::kPartly,
                    found & record::kCapDeviceReport ? "a caching allocator that reports every block" : "this PyTorch has none (CPU build)",
                    ""});
  checks.push_back({"C heap in use", found & record::kCapMallinfo ? Status::kOk : Status::kMissing,
                    found & record::kCapMallinfo ? "mallinfo2" : found & record::kCapForeignAllocator ? "malloc is not the C library's (jemalloc, tcmalloc ...)" : "no mallinfo2 here",
                    found & record::kCapMallinfo ? "" : "leaks without tensors show in resident memory alone"});
  checks.push_back({"Python's blocks", found & record::kCapPythonBlocks ? Status::kOk : Status::kMissing, "the interpreter's own count", ""});
  if (header.hooks[0]) checks.push_back({"slots", Status::kOk, header.hooks, ""});
}

void AddMachine(const Probe& probe, std::vector<Check>& checks) {
  struct statvfs info {};
  bool shm = ::statvfs("/dev/shm", &info) == 0 && ::access("/dev/shm", W_OK) == 0;
  double space = shm ? static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) : 0;
  checks.push_back({"/dev/shm", shm && space > 64e6 ? Status::kOk : Status::kPartly,
                    shm ? fmt::format("{} free", FormatBytes(space)) : "not writable",
                    shm && space > 64e6 ? "" : "ring files go to the run's folder; on a slow disk a step may wait for it"});
  if (probe.header) {
    const record::FileHeader& header = *probe.header;
    bool container = header.cgroup_limit_bytes != record::kAbsent;
    checks.push_back({"memory limit", Status::kOk,
                      container ? fmt::format("{} (container), {} (machine)", FormatBytes(static_cast<double>(header.cgroup_limit_bytes)), FormatBytes(static_cast<double>(header.host_total_bytes)))
                                : fmt::format("{} (machine)", FormatBytes(static_cast<double>(header.host_total_bytes))), ""});
    checks.push_back({"file descriptors", header.fd_limit < 4096 ? Status::kPartly : Status::kOk, fmt::format("limit {}", header.fd_limit),
                      header.fd_limit < 4096 ? "tensors received from workers hold descriptors: raise it with ulimit -n" : ""});
  }
  void* nvml = ::dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  checks.push_back({"driver's view of the GPUs", nvml ? Status::kOk : Status::kMissing, nvml ? "libnvidia-ml.so.1" : "no libnvidia-ml.so.1 here",
                    nvml ? "" : "memory outside PyTorch's allocator (pool device-other) is not watched"});
  if (nvml) ::dlclose(nvml);
}

std::string ToJson(const std::vector<Check>& checks) {
  JsonWriter json(1);
  json.BeginObject().Field("lowtide", kVersion).Field("schema", 1).Key("checks").BeginArray();
  for (const Check& check : checks) {
    json.BeginObject().Field("name", check.name).Field("status", Word(check.status)).Field("detail", check.detail);
    json.Field("remedy", check.remedy.empty() ? std::nullopt : std::optional(check.remedy)).EndObject();
  }
  json.EndArray().EndObject();
  return json.Take() + "\n";
}

void Print(const std::vector<Check>& checks, const Terminal& terminal) {
  for (const Check& check : checks) {
    std::string word = fmt::format("{:<8}", Word(check.status));
    word = check.status == Status::kOk ? terminal.Green(word) : check.status == Status::kPartly ? terminal.Yellow(word) : terminal.Red(word);
    fmt::print("{} {:<31} {}\n", word, check.name, check.detail);
    if (!check.remedy.empty()) fmt::print("{:41}{} {}\n", "", terminal.Cyan("-->"), check.remedy);
  }
}

}  // namespace

int Doctor(const DoctorOptions& options, const CommonOptions& common) {
  std::string python = FindPython(options.python);
  Probe probe = RunProbe(python, FindPackage(python));
  std::vector<Check> checks;
  AddTorch(probe, python, checks);
  AddMachine(probe, checks);
  if (options.format == "json") {
    fmt::print("{}", ToJson(checks));
  } else {
    Print(checks, TerminalFor(STDOUT_FILENO, common));
  }
  return probe.header && probe.exit_code != 3 ? 0 : 2;
}

}  // namespace lowtide::cli
