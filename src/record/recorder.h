// The in-process half as one object: steps, marks and events of this process, written to its ring.
#pragma once

#include <cstdint>

#include "lowtide/record/budget.h"
#include "lowtide/record/place.h"
#include "lowtide/record/ring_writer.h"

namespace lowtide::record {

struct RecorderOptions {
  const char* directory = "";         // the run's folder; "" records in private memory only
  const char* shm_directory = "/dev/shm";
  const char* shm_prefix = "lowtide-";
  const char* python_version = "";
  const char* torch_version = "";
  const char* script = "";
  const char* definer = "libc10.so";
  const char* proc_root = "";         // "" is the real /proc
  bool force_table = false;
  bool heap = true;                   // whether mallinfo2 may be called
  RingSizes sizes;
  int64_t (*python_blocks)() = nullptr;  // called by the thread that calls Step
};

enum StepAnswer : uint32_t {
  kStepCounted = 1,   // a record was written
  kStepFirst = 2,     // it was the first one
  kStepCensus = 4,    // the outside asks for a census: Recorder::census_request()
  kStepStop = 8,      // the outside, or the option for it, asks that the script end here
  kStepDevice = 16,   // a device was used for the first time: SetDevice wants to know its size and name
  kStepLoop = 32,     // a window of steps begins or ends, in which iterations of the loop are counted
};

class Recorder {
 public:
  // The one of this process.
  static Recorder& Get() noexcept;

  // Hooks the allocator and begins to count, in private memory until OpenFile. Idempotent: called again, it looks for
  // libraries loaded since. 0 or an errno.
  int Start(const RecorderOptions& options) noexcept;
  // Gives the ring its file in the run's folder. 0 or an errno.
  int OpenFile() noexcept;
  // -1 where a figure is not known; from now on the file is called after the rank.
  int SetRank(int rank, int local_rank, int world_size) noexcept;
  void SetRole(Role role) noexcept;

  // A step may have ended. Sources below the highest one seen are passed over.
  uint32_t Step(StepSource source) noexcept;
  bool Wants(StepSource source) const noexcept { return source >= source_; }
  void StopAt(uint64_t step) noexcept { stop_at_ = step; }
  // Why the outside asks for the end; forgets what it asked for.
  StopReason TakeStop() noexcept;
  void AddDataWait(int64_t ns) noexcept { data_wait_ns_ += ns; }
  // The training thread begins and ends to wait for other ranks; nested waits count once.
  void EnterWait(const char* name) noexcept;
  void LeaveWait() noexcept;

  Phase phase() const noexcept { return phase_; }
  void SetPhase(Phase phase) noexcept;
  void Mark(MarkKind kind, MarkEdge edge, uint32_t epoch, int64_t value, const char* text) noexcept;
  void SetEpoch(uint32_t epochs_ended) noexcept { epoch_ = epochs_ended; }
  void Event(EventKind kind, int32_t code, int64_t value, const char* text) noexcept;
  void LoseMark() noexcept;
  // In `steps` of some steps the loop at `place` went round `iterations` times.
  void NoteLoop(uint64_t steps, uint64_t iterations, const char* place) noexcept;
  void AddWorker(int pid, uint32_t loader, uint32_t worker) noexcept;
  void EndWorker(int pid) noexcept;
  // Asked for the figures of devices whose allocators make no reports, by the thread that calls Step: calls NoteDevice
  // for each and says whether there was one.
  void SetDeviceStats(bool (*note)()) noexcept { device_stats_ = note; }
  void SetDevice(int type, int index, int64_t capacity_bytes, const char* name) noexcept;

  uint64_t census_request() const noexcept;
  // A census is about to hold the program up: what it takes from now on is no growth of the program's, and no more are the
  // bytes that it took since its pause before, in mappings of its own and in the C heap.
  void CensusBegins(int64_t mapped_bytes, int64_t heap_bytes) noexcept;
  // That pause is over, but not the census: it goes on in another one.
  void CensusPaused(int64_t pause_ns, int64_t status) noexcept;
  void CensusDone(uint64_t request, int64_t pause_ns, int64_t status) noexcept;
  void Exit(ExitState state, int code) noexcept;

  uint64_t steps() const noexcept { return steps_; }
  const StepRecord& last() const noexcept { return last_; }
  const RingPlace& place() const noexcept { return place_; }
  FileHeader* header() noexcept { return ring_.open() ? ring_.header() : nullptr; }
  RingWriter& ring() noexcept { return ring_; }

 private:
  static constexpr uint64_t kFirstLoopWindow = 4, kLoopWindow = 12;  // steps; windows begin at 4, 21, 44, 74, ...

  uint32_t LoopAnswer() noexcept;
  void FillHeader(const RecorderOptions& options) noexcept;
  void SampleHost(StepRecord& record) noexcept;
  void SampleWorkers(const StepRecord& step) noexcept;
  bool WriteDevices(const StepRecord& record) noexcept;
  bool AskDevices(const StepRecord& record) noexcept;
  uint32_t Answer() const noexcept;
  static void ForkChild() noexcept;
  static void OnOom(int type, int index, int64_t asked, int64_t allocated, int64_t reserved) noexcept;

  RecorderOptions options_;
  RingWriter ring_;
  RingPlace place_;
  char directory_[1024] = {}, shm_directory_[256] = {}, shm_prefix_[96] = {}, proc_root_[256] = {};
  char shm_space_[320] = {};
  bool started_ = false;
  int named_rank_ = -1;  // the rank that the file is called after
  StepSource source_ = StepSource::kNone;
  Phase phase_ = Phase::kStep;
  uint64_t steps_ = 0, stop_at_ = 0, next_look_ = 8;
  uint64_t loop_window_ = kFirstLoopWindow, next_loop_ = kFirstLoopWindow;  // begin of the window, next time to look
  uint32_t epoch_ = 0;
  int64_t data_wait_ns_ = 0, collective_wait_ns_ = 0;
  uint32_t wait_depth_ = 0;
  uint64_t libraries_ = 0;
  int64_t heap_before_census_ = kAbsent, rss_before_census_ = 0;
  uint64_t census_pause_ns_ = 0;
  StepRecord last_{};
  Budget heap_budget_, host_budget_, python_budget_, worker_budget_, device_budget_;
  bool (*device_stats_)() = nullptr;
  int64_t python_cost_ns_ = 0;
  uint32_t devices_ = 0;  // seen so far
  uint32_t workers_ = 0;  // entries of the worker table in use
};

}  // namespace lowtide::record
