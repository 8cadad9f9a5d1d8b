#include "cli/export_tensorboard.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;
using record::kAbsent;

constexpr uint64_t kAllPoints = 1000;
constexpr int64_t kApartNs = 1'000'000'000;

// Whether a step is written: all at first, then by time, so that files of long runs stay small.
bool Due(uint64_t& points, int64_t& last_ns, int64_t now_ns) {
  if (points >= kAllPoints && now_ns < last_ns + kApartNs) return false;
  ++points;
  last_ns = now_ns;
  return true;
}

void AddFigure(std::vector<report::Scalar>& scalars, const char* pool, int64_t bytes) {
  if (bytes != kAbsent) scalars.push_back({fmt::format("memory/{}", pool), static_cast<double>(bytes)});
}

// Names of runs become names of folders.
std::string FolderName(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name.empty() || name[0] == '.' ? "_" + name : name;
}

// The start of a run that has outgrown its ring is in the thinned series.
void WriteThinned(report::EventFile& file, const record::Ring& ring, uint64_t until_step) {
  for (const record::SeriesRecord& entry : ring.Series()) {
    if (entry.last_step >= until_step) break;
    std::vector<report::Scalar> scalars;
    AddFigure(scalars, "cpu", entry.cpu.min);
    AddFigure(scalars, "heap", entry.heap.min);
    AddFigure(scalars, "host", entry.rss.min);
    AddFigure(scalars, "shm", entry.shm_tensor.min);
    if (!scalars.empty())
      file.Add(ring.WallTime(entry.mono_ns), static_cast<int64_t>(entry.last_step), scalars);
  }
}

}  // namespace

void TensorBoardExport::WriteRank(const std::string& run, const Follower::Followed& followed) {
  const record::Ring& ring = followed.ring;
  const record::FileHeader& header = ring.header();
  if (ring.steps().empty()) return;
  fs::path folder = fs::path(folder_) / FolderName(run) / fmt::format("rank{}", followed.view.rank);
  auto seconds = static_cast<int64_t>(ring.WallTime(header.start_mono_ns));
  std::string path =
      (folder / fmt::format("events.out.tfevents.{:010}.lowtide.{}", seconds, header.pid)).string();
  Rank& rank = ranks_[path];
  if (!rank.file) {
    std::error_code error;
    fs::create_directories(folder, error);
    fs::remove(path, error);  // of an earlier export of the same run
    rank.file = std::make_unique<report::EventFile>(path, ring.WallTime(header.start_mono_ns));
    if (ring.steps().front().step > 1) WriteThinned(*rank.file, ring, ring.steps().front().step);
  }
  const record::StepRecord* before = nullptr;
  const auto& steps = ring.steps();
  auto at = std::upper_bound(steps.begin(), steps.end(), rank.last_step,
                             [](uint64_t step, const auto& record) { return step < record.step; });
  if (at != steps.begin()) before = &*std::prev(at);
  for (; at != steps.end(); before = &*at++) {
    rank.last_step = at->step;
    if (!Due(rank.points, rank.last_ns, at->mono_ns)) continue;
    std::vector<report::Scalar> scalars;
    if (header.capabilities & record::kCapAllocCpu) AddFigure(scalars, "cpu", at->cpu_bytes);
    AddFigure(scalars, "heap", at->heap_bytes);
    AddFigure(scalars, "host", at->rss_bytes);
    if (header.capabilities & record::kCapReport) AddFigure(scalars, "shm", at->shm_tensor_bytes);
    if (before && before->step + 1 == at->step)
      scalars.push_back({"step/seconds", static_cast<double>(at->mono_ns - before->mono_ns) * 1e-9});
    if (!scalars.empty()) rank.file->Add(ring.WallTime(at->mono_ns), static_cast<int64_t>(at->step), scalars);
  }
  const auto& devices = ring.devices();
  auto next = std::upper_bound(devices.begin(), devices.end(), rank.last_device_step,
                               [](uint64_t step, const auto& record) { return step < record.step; });
  bool due = false;
  for (; next != devices.end(); ++next) {
    if (next->step != rank.last_device_step)
      due = Due(rank.device_points, rank.last_device_ns, next->mono_ns);
    rank.last_device_step = next->step;
    if (!due) continue;
    std::string name = record::DeviceName(next->type, next->index);
    std::vector<report::Scalar> scalars;
    AddFigure(scalars, name.c_str(), next->allocated_bytes);
    AddFigure(scalars, (name + " reserved").c_str(), next->reserved_bytes);
    if (!scalars.empty())
      rank.file->Add(ring.WallTime(next->mono_ns), static_cast<int64_t>(next->step), scalars);
  }
  rank.file->Flush();
}

void TensorBoardExport::Write(const Fleet& fleet) {
  for (const auto& [run, follower] : fleet.Followers()) {
    for (const Follower::Followed& rank : follower->Ranks()) WriteRank(run, rank);
  }
}

}  // namespace lowtide::cli
