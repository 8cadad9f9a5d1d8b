// Step marks of a C++ program: the same ring file that `lowtide run` has from Python programs, so that `lowtide watch`,
// `lowtide report` and `lowtide export` show it. Header-only, needs no library.
//
//   lowtide::StepRecorder recorder;                 // under `lowtide run -- ./train`: where it says
//   lowtide::StepRecorder recorder("runs/today");   // else: this folder, and nothing without one
//   ...
//   if (recorder.Step()) break;                 // after each optimizer step; true: lowtide asks for an orderly end
//
// What is recorded: the C heap in use, resident memory, open descriptors, /dev/shm, and the devices that `devices` reads
// (torch.h's lowtide::Recorder gives it CUDA's). Each sampler is bounded to a small share of the run's time. Nothing here
// throws, prints or allocates per step; a recorder that could not begin does nothing, and error() says why.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "lowtide/record/budget.h"
#include "lowtide/record/figures.h"
#include "lowtide/record/host.h"
#include "lowtide/record/place.h"
#include "lowtide/record/ring_writer.h"
#include "lowtide/record/shm_name.h"

namespace lowtide {

// A device's caching allocator at one moment, in bytes; `total` is its memory, record::kAbsent when not known.
struct DeviceFigures {
  int type = 1, index = 0;  // c10::DeviceType: 1 is CUDA
  int64_t allocated = record::kAbsent, reserved = record::kAbsent, peak = record::kAbsent, total = record::kAbsent;
  char name[48] = {};
};

struct RecorderOptions {
  const char* library_version = "";  // PyTorch's
  const char* program = "";          // empty: the executable's name
  // Fills at most `most` figures, returns how many. Called at each step.
  int (*devices)(DeviceFigures* figures, int most) noexcept = nullptr;
  record::RingSizes sizes;
};

// One per process; steps from one thread.
class StepRecorder {
 public:
  explicit StepRecorder(const RecorderOptions& options = {}) noexcept { Open(std::getenv("LOWTIDE_RUN_DIR"), options); }
  explicit StepRecorder(const std::string& folder, const RecorderOptions& options = {}) noexcept {
    const char* asked = std::getenv("LOWTIDE_RUN_DIR");  // the outside knows where it looks
    Open(asked != nullptr && *asked != 0 ? asked : folder.c_str(), options);
  }
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;
  // A program that is left by an exception or by exit() without coming here counts as ended without a word.
  ~StepRecorder() { Exit(0); }

  bool recording() const noexcept { return ring_.open(); }
  // 0, or the errno that recording failed with.
  int error() const noexcept { return error_; }
  uint64_t steps() const noexcept { return step_; }
  // The ring file in the run's folder.
  const char* file() const noexcept { return place_.name(); }

  // A step has ended. True when the outside asks that the program end here (`lowtide run --steps N`, `--exit-at`).
  bool Step() noexcept;
  // Validation and checkpoints are phases of their own in every verdict. Ended by SetPhase(record::Phase::kStep).
  void SetPhase(record::Phase phase) noexcept;
  // An epoch has ended.
  void EndEpoch() noexcept;
  // How the program ends; called by the destructor with 0.
  void Exit(int code) noexcept;

 private:
  void Open(const char* folder, const RecorderOptions& options) noexcept;
  void FillHeader(const RecorderOptions& options) noexcept;
  void Sample(record::StepRecord& record) noexcept;
  void WriteDevices(const record::StepRecord& step) noexcept;
  void Mark(record::MarkKind kind, record::MarkEdge edge, int64_t value) noexcept;
  static int Number(const char* name) noexcept {
    const char* text = std::getenv(name);
    return text != nullptr && *text >= '0' && *text <= '9' ? std::atoi(text) : -1;
  }

  record::RingWriter ring_;
  record::RingPlace place_;
  record::Budget heap_ = record::kHeapBudget, host_ = record::kHostBudget;
  int (*devices_)(DeviceFigures*, int) noexcept = nullptr;
  record::Phase phase_ = record::Phase::kStep;
  uint64_t step_ = 0, stop_at_ = 0;
  uint32_t epoch_ = 0;
  int error_ = 0, pid_ = 0;
};

// ---- implementation ----

inline void StepRecorder::Open(const char* folder, const RecorderOptions& options) noexcept try {
  if (folder == nullptr || *folder == 0) return;
  pid_ = ::getpid();
  devices_ = options.devices;
  ::mkdir(folder, 0777);  // may be there
  const std::string directory = std::filesystem::absolute(folder).string();
  error_ = ring_.CreateAnonymous(options.sizes);
  if (error_ != 0) return;
  FillHeader(options);
  ring_.Publish();
  const char* shm = std::getenv("LOWTIDE_SHM_DIR");
  error_ = place_.Open(&ring_, directory.c_str(), shm != nullptr ? shm : "/dev/shm", record::ShmPrefix(directory).c_str(), pid_);
  if (error_ != 0) return;
  if (place_.in_shm()) ring_.header()->capabilities |= record::kCapRingInShm;
  const int steps = Number("LOWTIDE_STEPS");
  if (steps > 0) stop_at_ = static_cast<uint64_t>(steps);
} catch (...) {
  error_ = error_ != 0 ? error_ : EINVAL;
}

inline void StepRecorder::FillHeader(const RecorderOptions& options) noexcept {
  record::FileHeader* head = ring_.header();
  head->pid = pid_;
  head->parent_pid = ::getppid();
  head->rank = Number("RANK");
  head->local_rank = Number("LOCAL_RANK");
  head->world_size = Number("WORLD_SIZE");
  head->start_wall_ns = record::WallNs();
  head->start_mono_ns = record::MonotonicNs();
  record::ReadMachine("", "/dev/shm", head);
  if (record::HeapKnown()) head->capabilities |= record::kCapMallinfo;
  if (options.devices != nullptr) head->capabilities |= record::kCapDeviceStats;
  std::snprintf(head->torch_version, sizeof head->torch_version, "%s", options.library_version);
  if (*options.program != 0) {
    std::snprintf(head->script, sizeof head->script, "%s", options.program);
  } else if (::readlink("/proc/self/exe", head->script, sizeof head->script - 1) < 0) {
    head->script[0] = 0;
  }
}

inline bool StepRecorder::Step() noexcept {
  if (!ring_.open() || error_ != 0 || ::getpid() != pid_) return false;
  record::FileHeader* head = ring_.header();
  if (step_ == 0) {
    head->role = record::Role::kTrainer;
    if (head->rank < 0) head->rank = 0;
    place_.NameByRank(head->rank);  // a name that cannot be had is the old one
  }
  record::StepRecord record{};
  record.step = ++step_;
  record.mono_ns = record::MonotonicNs();
  record.cpu_bytes = record.cpu_peak_bytes = record.cpu_blocks = record.shm_tensor_bytes = record::kAbsent;
  record.phase = phase_;
  record.source = record::StepSource::kUser;
  record.epoch = static_cast<uint16_t>(std::min<uint32_t>(epoch_, UINT16_MAX));
  Sample(record);
  WriteDevices(record);
  head->step_source = record.source;
  ring_.Write(record);
  record::Control& control = head->control;
  const uint64_t request = __atomic_load_n(&control.census_request, __ATOMIC_RELAXED);
  if (request != control.census_done) {  // C++ objects cannot be walked: no one answers
    control.census_step = step_;
    control.census_status = -1;
    __atomic_store_n(&control.census_done, request, __ATOMIC_RELEASE);
  }
  const uint64_t stop = __atomic_load_n(&control.stop_at_step, __ATOMIC_RELAXED);
  return (stop != 0 && step_ >= stop) || (stop_at_ != 0 && step_ >= stop_at_);
}

inline void StepRecorder::Sample(record::StepRecord& record) noexcept {
  using namespace record;
  record.heap_bytes = record.python_blocks = record.rss_bytes = record.shared_bytes = record.shm_used_bytes = kAbsent;
  record.fds = -1;
  Counters& counters = ring_.header()->counters;
  const int64_t now = record.mono_ns, start = ThreadCpuNs();
  int64_t at = start;
  if (heap_.Allows(now)) {
    record.heap_bytes = ReadHeap();
    const int64_t after = ThreadCpuNs();
    heap_.Spend(now, after - at);
    at = after;
    ++counters.samples_heap;
  }
  if (host_.Allows(now)) {
    ReadProcess("", "/dev/shm", &record);
    const int64_t after = ThreadCpuNs();
    host_.Spend(now, after - at);
    at = after;
    ++counters.samples_host;
  }
  counters.own_ns += static_cast<uint64_t>(at - start);
  record.own_us = static_cast<uint32_t>(std::min<int64_t>((at - start + 500) / 1000, UINT32_MAX));
}

inline void StepRecorder::WriteDevices(const record::StepRecord& step) noexcept {
  if (devices_ == nullptr) return;
  DeviceFigures figures[record::kMaxDevices];
  const int count = std::min<int>(devices_(figures, record::kMaxDevices), record::kMaxDevices);
  for (int i = 0; i < count; ++i) {
    const DeviceFigures& device = figures[i];
    record::DeviceEntry& entry = ring_.header()->devices[i];
    if (entry.used == 0) {
      entry.type = static_cast<int8_t>(device.type);
      entry.index = static_cast<int8_t>(device.index);
      entry.capacity_bytes = device.total;
      std::memcpy(entry.name, device.name, sizeof entry.name);
      entry.used = 1;
    }
    record::DeviceRecord record = record::DeviceRecordOf(step, entry, static_cast<uint32_t>(i));
    record.allocated_bytes = device.allocated;
    record.reserved_bytes = device.reserved;
    record.peak_bytes = device.peak;
    ring_.Write(record);
  }
}

inline void StepRecorder::Mark(record::MarkKind kind, record::MarkEdge edge, int64_t value) noexcept {
  record::MarkRecord mark{};
  mark.step = step_;
  mark.mono_ns = record::MonotonicNs();
  mark.kind = kind;
  mark.edge = edge;
  mark.epoch = epoch_;
  mark.value = value;
  ring_.Write(mark);
}

inline void StepRecorder::SetPhase(record::Phase phase) noexcept {
  if (!ring_.open() || phase == phase_) return;
  const auto kind = [](record::Phase of) {
    return of == record::Phase::kCheckpoint ? record::MarkKind::kCheckpoint : record::MarkKind::kValidation;
  };
  if (phase_ == record::Phase::kValidation || phase_ == record::Phase::kCheckpoint) Mark(kind(phase_), record::MarkEdge::kEnd, 0);
  phase_ = phase;
  ring_.header()->phase = static_cast<uint8_t>(phase);
  if (phase == record::Phase::kValidation || phase == record::Phase::kCheckpoint) Mark(kind(phase), record::MarkEdge::kBegin, 0);
}

inline void StepRecorder::EndEpoch() noexcept {
  if (!ring_.open()) return;
  Mark(record::MarkKind::kEpoch, record::MarkEdge::kEnd, epoch_);
  ++epoch_;
}

inline void StepRecorder::Exit(int code) noexcept {
  if (!ring_.open() || ::getpid() != pid_ || ring_.header()->exit_state != record::ExitState::kRunning) return;
  record::EventRecord event{};
  event.step = step_;
  event.mono_ns = record::MonotonicNs();
  event.kind = record::EventKind::kExit;
  event.code = code;
  const auto state = code == 0 ? record::ExitState::kClean : record::ExitState::kException;
  event.value = static_cast<int64_t>(state);
  ring_.Write(event);
  record::FileHeader* head = ring_.header();
  head->exit_code = code;
  head->exit_mono_ns = event.mono_ns;
  head->exit_state = state;
}

}  // namespace lowtide
