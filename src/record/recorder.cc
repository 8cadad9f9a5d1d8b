#include "record/recorder.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "record/got.h"
#include "lowtide/record/figures.h"
#include "lowtide/record/host.h"
#include "record/last_word.h"
#include "record/looks.h"
#include "record/tracker.h"

namespace lowtide::record {
namespace {

constexpr Budget kPythonBudget(300, 10'000'000), kWorkerBudget(500, 20'000'000), kDeviceBudget(500, 10'000'000);
// The interpreter counts its blocks by going through all of them: where that is slow, not at every step even at first.
constexpr int64_t kSlowCountNs = 50'000;
constexpr uint64_t kSlowCountEvery = 8;

template <size_t N>
void Copy(char (&to)[N], const char* from) noexcept {
  std::snprintf(to, N, "%s", from);
}

}  // namespace

Recorder& Recorder::Get() noexcept {
  static Recorder recorder;
  return recorder;
}

int Recorder::Start(const RecorderOptions& options) noexcept {
  if (!started_) {
    options_ = options;
    Copy(directory_, options.directory);
    Copy(shm_directory_, options.shm_directory);
    Copy(shm_prefix_, options.shm_prefix);
    Copy(proc_root_, options.proc_root);
    std::snprintf(shm_space_, sizeof(shm_space_), "%s/dev/shm", proc_root_);
    const int failure = ring_.CreateAnonymous(options.sizes);
    if (failure != 0) return failure;
    heap_budget_ = kHeapBudget, host_budget_ = kHostBudget, python_budget_ = kPythonBudget;
    worker_budget_ = kWorkerBudget, device_budget_ = kDeviceBudget;
    FillHeader(options);
    SetOomCallback(&Recorder::OnOom);
    ::pthread_atfork(nullptr, nullptr, &Recorder::ForkChild);
    started_ = true;
  }
  const TrackerReport report = StartTracker(&ring_, options.definer, options.force_table);
  FileHeader* head = ring_.header();
  head->capabilities |= report.capabilities;
  if (report.hooks[0] != 0) {
    const size_t length = std::strlen(head->hooks);
    std::snprintf(head->hooks + length, sizeof(head->hooks) - length, "%s%s", length == 0 ? "" : "; ", report.hooks);
  }
  libraries_ = LoadedLibraries();
  ring_.Publish();
  return 0;
}

void Recorder::FillHeader(const RecorderOptions& options) noexcept {
  FileHeader* head = ring_.header();
  head->pid = ::getpid();
  head->parent_pid = ::getppid();
  head->rank = head->local_rank = head->world_size = -1;
  head->start_wall_ns = WallNs();
  head->start_mono_ns = MonotonicNs();
  ReadMachine(proc_root_, shm_space_, head);
  if (HeapKnown() && options.heap) head->capabilities |= kCapMallinfo;
  if (options.python_blocks != nullptr) head->capabilities |= kCapPythonBlocks;
  Copy(head->python_version, options.python_version);
  Copy(head->torch_version, options.torch_version);
  Copy(head->script, options.script);
}

int Recorder::OpenFile() noexcept {
  if (place_.open()) return 0;
  if (!started_ || directory_[0] == 0) return ENOENT;
  const int failure = place_.Open(&ring_, directory_, shm_directory_, shm_prefix_, ring_.header()->pid);
  if (failure != 0) return failure;
  if (place_.in_shm()) ring_.header()->capabilities |= kCapRingInShm;
  LeaveLastWord(ring_.header());
  return 0;
}

int Recorder::SetRank(int rank, int local_rank, int world_size) noexcept {
  if (!started_) return ENOENT;
  FileHeader* head = ring_.header();
  head->rank = rank;
  if (local_rank >= 0) head->local_rank = local_rank;
  if (world_size > 0) head->world_size = world_size;
  if (!place_.open() || rank < 0 || rank == named_rank_) return 0;
  named_rank_ = rank;
  return place_.NameByRank(rank);
}

void Recorder::SetRole(Role role) noexcept {
  if (started_) ring_.header()->role = role;
}

void Recorder::EnterWait(const char* name) noexcept {
  if (!started_ || wait_depth_++ != 0) return;
  Control& control = ring_.header()->control;
  std::snprintf(control.wait_name, sizeof(control.wait_name), "%s", name);
  ++control.waits;
  __atomic_store_n(&control.wait_since_ns, MonotonicNs(), __ATOMIC_RELEASE);
}

void Recorder::LeaveWait() noexcept {
  if (!started_ || wait_depth_ == 0 || --wait_depth_ != 0) return;
  Control& control = ring_.header()->control;
  collective_wait_ns_ += MonotonicNs() - control.wait_since_ns;
  __atomic_store_n(&control.wait_since_ns, int64_t{0}, __ATOMIC_RELEASE);
}

uint32_t Recorder::Step(StepSource source) noexcept {
  if (!started_ || source < source_) return 0;
  source_ = source;
  StepRecord record;
  record.step = ++steps_;
  record.mono_ns = MonotonicNs();
  const CpuFigures cpu = ReadCpu();
  record.cpu_bytes = cpu.bytes;
  record.cpu_blocks = cpu.blocks;
  record.cpu_peak_bytes = std::max(cpu.peak, last_.cpu_bytes);
  record.shm_tensor_bytes = ReadSharedTensorBytes();
  record.phase = phase_;
  record.source = source;
  record.epoch = static_cast<uint16_t>(std::min<uint32_t>(epoch_, UINT16_MAX));
  record.data_wait_us = static_cast<uint32_t>(std::min<int64_t>(data_wait_ns_ / 1000, UINT32_MAX));
  record.collective_wait_us = static_cast<uint32_t>(std::min<int64_t>(collective_wait_ns_ / 1000, UINT32_MAX));
  record.reserved = 0;
  data_wait_ns_ = 0, collective_wait_ns_ = 0;
  SampleHost(record);
  if (workers_ != 0 && worker_budget_.Allows(record.mono_ns)) SampleWorkers(record);
  const bool new_device = WriteDevices(record);
  SetClock(steps_, phase_);
  ring_.header()->step_source = source;
  if (__builtin_expect(ring_.header()->exit_state == ExitState::kSignal, 0)) {  // a handler of others' dealt with it
    ring_.header()->exit_state = ExitState::kRunning;
  }
  ring_.Write(record);
  last_ = record;
  if (steps_ >= next_look_) {
    WriteLook(ring_, steps_);
    next_look_ = steps_ + std::max<uint64_t>(8, steps_ / 12);
  }
  const uint32_t answer = kStepCounted | (steps_ == 1 ? kStepFirst : 0u) | (new_device ? kStepDevice : 0u) |
                          (steps_ == next_loop_ ? LoopAnswer() : 0u) | Answer();
  return answer;
}

uint32_t Recorder::LoopAnswer() noexcept {
  const bool ends = steps_ != loop_window_;
  if (ends) loop_window_ = steps_ + std::max<uint64_t>(5, steps_ / 3);
  next_loop_ = ends ? loop_window_ : loop_window_ + kLoopWindow;
  return kStepLoop;
}

void Recorder::NoteLoop(uint64_t steps, uint64_t iterations, const char* place) noexcept {
  if (!started_) return;
  LoopFigures& loop = ring_.header()->loop;
  Copy(loop.place, place);
  __atomic_store_n(&loop.iterations, iterations, __ATOMIC_RELAXED);
  __atomic_store_n(&loop.steps, steps, __ATOMIC_RELEASE);
}

// Each sampler as often as its budget allows; what is not sampled is absent from the record.
void Recorder::SampleHost(StepRecord& record) noexcept {
  record.heap_bytes = record.python_blocks = record.rss_bytes = record.shared_bytes = record.shm_used_bytes = kAbsent;
  record.fds = -1;
  record.own_us = 0;
  const int64_t now = record.mono_ns;
  const bool heap = options_.heap && heap_budget_.Allows(now), host = host_budget_.Allows(now);
  const bool python = options_.python_blocks != nullptr && python_budget_.Allows(now) &&
                      (python_cost_ns_ < kSlowCountNs || record.step % kSlowCountEvery == 0);
  if (!heap && !host && !python) return;
  Counters& counters = ring_.header()->counters;
  const int64_t start = ThreadCpuNs();  // not the wall's: what others do meanwhile is no cost of ours
  int64_t before = start;
  const auto spend = [&](Budget& budget, uint64_t& samples) {
    const int64_t after = ThreadCpuNs(), cost = after - before;
    budget.Spend(now, cost);
    ++samples;
    before = after;
    return cost;
  };
  if (heap) {
    record.heap_bytes = ReadHeap();
    spend(heap_budget_, counters.samples_heap);
  }
  if (python) {
    record.python_blocks = options_.python_blocks();
    python_cost_ns_ = spend(python_budget_, counters.samples_python);
  }
  if (host) {
    ReadProcess(proc_root_, shm_space_, &record);
    spend(host_budget_, counters.samples_host);
    if (const uint64_t loaded = LoadedLibraries(); loaded != libraries_) {
      Start(options_);
      before = ThreadCpuNs();
    }
  }
  counters.own_ns += static_cast<uint64_t>(before - start);
  record.own_us = static_cast<uint32_t>(std::min<int64_t>((before - start + 500) / 1000, UINT32_MAX));
}

// The DataLoader's processes, from the trainer's side: they write nothing themselves, and nothing is read of them that
// would hold up their memory. All records of one round carry the same step.
void Recorder::SampleWorkers(const StepRecord& step) noexcept {
  const int64_t start = ThreadCpuNs();
  for (uint32_t i = 0; i < workers_; ++i) {
    WorkerEntry& entry = ring_.worker_table()[i];
    if (entry.pid == 0 || entry.ended != 0) continue;
    WorkerRecord record{};
    StatusFigures status;
    record.step = step.step;
    record.mono_ns = step.mono_ns;
    record.pid = entry.pid;
    record.parent_pid = ring_.header()->pid;
    record.loader = entry.loader;
    record.worker = entry.worker;
    record.alive = ReadStatus(proc_root_, entry.pid, &status) && status.state != 'Z' &&
                   status.parent_pid == entry.parent_pid;  // else another process has the number by now
    const bool alive = record.alive != 0;
    record.rss_anon_bytes = alive ? status.rss_anon_bytes : kAbsent;
    record.rss_file_bytes = alive ? status.rss_file_bytes : kAbsent;
    record.rss_shmem_bytes = alive ? status.rss_shmem_bytes : kAbsent;
    record.rss_bytes = alive ? status.rss_anon_bytes + status.rss_file_bytes + status.rss_shmem_bytes : kAbsent;
    const int64_t faults = alive ? ReadMinorFaults(proc_root_, entry.pid) : kAbsent;
    record.minor_faults = faults == kAbsent ? 0 : static_cast<uint64_t>(faults);
    record.fds = alive ? CountDescriptors(proc_root_, entry.pid) : -1;
    if (!alive) entry.ended = 1;
    ring_.Write(record);
  }
  const int64_t cost = ThreadCpuNs() - start;
  worker_budget_.Spend(step.mono_ns, cost);
  ring_.header()->counters.own_ns += static_cast<uint64_t>(cost);
}

uint32_t Recorder::Answer() const noexcept {
  const Control& control = ring_.header()->control;
  uint32_t answer = 0;
  if (__atomic_load_n(&control.census_request, __ATOMIC_RELAXED) != control.census_done) answer |= kStepCensus;
  const uint64_t stop = __atomic_load_n(&control.stop_at_step, __ATOMIC_RELAXED);
  if ((stop != 0 && steps_ >= stop) || (stop_at_ != 0 && steps_ >= stop_at_)) answer |= kStepStop;
  return answer;
}

StopReason Recorder::TakeStop() noexcept {
  if (!started_) return StopReason::kAsked;
  Control& control = ring_.header()->control;
  if (__atomic_exchange_n(&control.stop_at_step, 0, __ATOMIC_ACQUIRE) == 0) return StopReason::kAsked;
  return static_cast<StopReason>(control.stop_reason);
}

void Recorder::SetPhase(Phase phase) noexcept {
  if (phase == phase_ || !started_) return;
  phase_ = phase;
  ring_.header()->phase = static_cast<uint8_t>(phase);
  SetClock(steps_, phase);
}

void Recorder::Mark(MarkKind kind, MarkEdge edge, uint32_t epoch, int64_t value, const char* text) noexcept {
  MarkRecord record{};
  record.step = steps_;
  record.mono_ns = MonotonicNs();
  record.kind = kind;
  record.edge = edge;
  record.epoch = epoch;
  record.value = value;
  Copy(record.text, text);
  ring_.Write(record);
}

void Recorder::Event(EventKind kind, int32_t code, int64_t value, const char* text) noexcept {
  EventRecord record{};
  record.step = steps_;
  record.mono_ns = MonotonicNs();
  record.kind = kind;
  record.code = code;
  record.value = value;
  Copy(record.text, text);
  ring_.Write(record);
}

void Recorder::OnOom(int type, int index, int64_t asked, int64_t allocated, int64_t reserved) noexcept {
  Recorder& self = Get();
  if (!self.started_) return;
  EventRecord record{};
  record.step = self.steps_;
  record.mono_ns = MonotonicNs();
  record.kind = EventKind::kOom;
  record.pool = static_cast<uint16_t>(index);
  record.code = type;
  record.value = asked;
  record.value2 = allocated;
  record.value3 = reserved;
  Copy(record.text, type == 0 ? "the host refused memory" : "the device refused memory");
  self.ring_.Write(record);
  __atomic_fetch_add(&self.ring_.header()->counters.ooms, 1, __ATOMIC_RELAXED);
}

void Recorder::LoseMark() noexcept {
  if (started_) __atomic_fetch_add(&ring_.header()->counters.lost_marks, 1, __ATOMIC_RELAXED);
}

void Recorder::AddWorker(int pid, uint32_t loader, uint32_t worker) noexcept {
  if (!started_ || pid <= 0) return;
  WorkerEntry* oldest = nullptr;
  for (uint32_t i = 0; i < ring_.worker_table_size(); ++i) {
    WorkerEntry& entry = ring_.worker_table()[i];
    if (entry.pid != 0 && entry.ended == 0) continue;
    if (entry.pid == 0 || oldest == nullptr || entry.start_mono_ns < oldest->start_mono_ns) oldest = &entry;
    if (entry.pid == 0) break;
  }
  if (oldest == nullptr) {
    ++ring_.header()->counters.lost_workers;
    return;
  }
  workers_ = std::max(workers_, static_cast<uint32_t>(oldest - ring_.worker_table()) + 1);
  oldest->loader = loader;
  oldest->worker = worker;
  oldest->ended = 0;
  oldest->start_mono_ns = MonotonicNs();
  StatusFigures status;  // its parent is this process, or a server that forks for it
  oldest->parent_pid = ReadStatus(proc_root_, pid, &status) ? status.parent_pid : ring_.header()->pid;
  __atomic_store_n(&oldest->pid, pid, __ATOMIC_RELEASE);
}

void Recorder::EndWorker(int pid) noexcept {
  if (!started_) return;
  for (uint32_t i = 0; i < ring_.worker_table_size(); ++i) {
    WorkerEntry& entry = ring_.worker_table()[i];
    if (entry.pid == pid) __atomic_store_n(&entry.ended, 1, __ATOMIC_RELEASE);
  }
}

void Recorder::Exit(ExitState state, int code) noexcept {
  if (!started_) return;
  FileHeader* head = ring_.header();
  Event(EventKind::kExit, code, static_cast<int64_t>(state), "");
  head->exit_code = code;
  head->exit_mono_ns = MonotonicNs();
  head->exit_state = state;
}

// A forked child is a process of its own: it counts in memory of its own, from nothing, and gets a file only when it
// trains.
void Recorder::ForkChild() noexcept {
  Recorder& self = Get();
  if (!self.started_) return;
  LeaveLastWord(nullptr);
  const FileHeader* old = self.ring_.header();
  self.ring_.Abandon();
  self.place_ = RingPlace();
  self.named_rank_ = -1;
  self.loop_window_ = self.next_loop_ = kFirstLoopWindow;
  self.steps_ = 0, self.devices_ = 0, self.epoch_ = 0, self.workers_ = 0, self.data_wait_ns_ = 0, self.collective_wait_ns_ = 0, self.wait_depth_ = 0, self.phase_ = Phase::kStep;
  self.source_ = StepSource::kNone, self.last_ = {}, self.census_pause_ns_ = 0;
  if (self.ring_.CreateAnonymous(self.options_.sizes) != 0) {
    self.started_ = false;
    RestartTrackerInChild(nullptr);
    return;
  }
  FileHeader* head = self.ring_.header();
  head->pid = ::getpid();
  head->parent_pid = ::getppid();
  head->rank = head->local_rank = head->world_size = -1;
  head->start_wall_ns = WallNs();
  head->start_mono_ns = MonotonicNs();
  head->host_total_bytes = old->host_total_bytes;
  head->cgroup_limit_bytes = old->cgroup_limit_bytes;
  head->shm_total_bytes = old->shm_total_bytes;
  head->fd_limit = old->fd_limit;
  head->capabilities = old->capabilities & ~static_cast<uint64_t>(kCapRingInShm);
  std::memcpy(head->python_version, old->python_version, sizeof(head->python_version));
  std::memcpy(head->torch_version, old->torch_version, sizeof(head->torch_version));
  std::memcpy(head->hostname, old->hostname, sizeof(head->hostname));
  std::memcpy(head->script, old->script, sizeof(head->script));
  std::memcpy(head->hooks, old->hooks, sizeof(head->hooks));
  self.ring_.Publish();
  RestartTrackerInChild(&self.ring_);
}

}  // namespace lowtide::record
