#include "cli/judge.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace lowtide::cli {
namespace {

using record::kAbsent;
using record::StepRecord;

// Python's small blocks are counted, not weighed; most that pile up are numbers, strings and tuples.
constexpr double kPythonBlockBytes = 40;

series::Phase PhaseOf(record::Phase phase) {
  switch (phase) {
    case record::Phase::kStep:
      return series::Phase::kStep;
    case record::Phase::kValidation:
      return series::Phase::kValidation;
    case record::Phase::kCheckpoint:
      return series::Phase::kCheckpoint;
    case record::Phase::kEpoch:
      return series::Phase::kEpoch;
    case record::Phase::kOther:
      break;
  }
  return series::Phase::kOther;
}

std::optional<series::Phase> EventOf(const record::MarkRecord& mark) {
  if (mark.edge == record::MarkEdge::kBegin) return std::nullopt;
  switch (mark.kind) {
    case record::MarkKind::kEpoch:
      return series::Phase::kEpoch;
    case record::MarkKind::kValidation:
      return series::Phase::kValidation;
    case record::MarkKind::kCheckpoint:
      return series::Phase::kCheckpoint;
    default:
      return std::nullopt;
  }
}

double Bytes(int64_t figure) { return figure == kAbsent ? series::Point::kUnknown : static_cast<double>(figure); }

}  // namespace

void RankJudge::Start(const record::Ring& ring) {
  const record::FileHeader& header = ring.header();
  started_ = true;
  rank_ = std::max(header.rank, 0);
  exact_cpu_ = header.capabilities & record::kCapAllocCpu;
  reports_ = header.capabilities & record::kCapReport;
  for (int64_t limit : {header.host_total_bytes, header.cgroup_limit_bytes}) {
    if (limit > 0 && (limit_ == 0 || static_cast<double>(limit) < limit_)) limit_ = static_cast<double>(limit);
  }
}

// Devices show up, and say how large they are, when they are first used.
void RankJudge::NoteCapacities(const record::Ring& ring) {
  for (const record::DeviceEntry& device : ring.header().devices) {
    if (!device.used) break;
    double capacity = options_.capacity ? static_cast<double>(options_.capacity) : Bytes(device.capacity_bytes);
    if (capacity > 0) device_capacity_[record::DeviceName(device.type, device.index)] = capacity;
  }
}

void RankJudge::Update(const record::Ring& ring) {
  if (!started_) {
    if (ring.steps().empty()) return;
    Start(ring);
    AddWholeRun(ring);
  }
  NoteCapacities(ring);
  AddSteps(ring);
  AddDevices(ring, UINT64_MAX);
  AddWorkers(ring);
  AddDriver(ring);
}

// A ring that has run over: the start of the run is in the thinned series.
void RankJudge::AddWholeRun(const record::Ring& ring) {
  uint64_t first = ring.steps().front().step;
  if (first <= 1) return;
  for (const record::SeriesRecord& entry : ring.Series()) {
    if (entry.last_step >= first) break;
    StepRecord record{};
    record.step = entry.last_step;
    record.mono_ns = entry.mono_ns;
    record.cpu_bytes = entry.cpu.min;
    record.cpu_peak_bytes = entry.cpu_peak;
    record.heap_bytes = entry.heap.min;
    record.python_blocks = entry.python_blocks.min;
    record.rss_bytes = entry.rss.min;
    record.shared_bytes = entry.shared.min;
    record.shm_tensor_bytes = entry.shm_tensor.min;
    record.fds = entry.fds.min == kAbsent ? -1 : static_cast<int32_t>(entry.fds.min);
    AddStep(record);
  }
}

void RankJudge::AddSteps(const record::Ring& ring) {
  const auto& steps = ring.steps();
  auto at = std::upper_bound(steps.begin(), steps.end(), last_step_,
                             [](uint64_t step, const StepRecord& record) { return step < record.step; });
  const auto looks = ring.newest_look() > last_look_ ? ring.Looks() : std::vector<record::LedgerLook>();
  size_t next_look = 0;
  for (; at != steps.end(); ++at) {
    AddMarks(ring, at->step);
    NoteCensuses(ring, at->step);
    AddStep(*at);
    AddDevices(ring, at->step);
    AddLooks(looks, next_look, at->step);
  }
}

void RankJudge::AddMarks(const record::Ring& ring, uint64_t until_step) {
  const auto& marks = ring.marks();
  for (; marks_seen_ < marks.size() && marks[marks_seen_].step < until_step; ++marks_seen_) {
    auto event = EventOf(marks[marks_seen_]);
    if (!event) continue;
    for (auto& [name, pool] : pools_) pool.engine->AddMark(*event, marks[marks_seen_].step);
  }
}

// A census keeps a map of the process; that is lowtide's memory, not the program's.
void RankJudge::NoteCensuses(const record::Ring& ring, uint64_t before_step) {
  const auto& events = ring.events();
  for (; events_seen_ < events.size() && events[events_seen_].step < before_step; ++events_seen_) {
    const record::EventRecord& event = events[events_seen_];
    if (event.kind != record::EventKind::kCensus) continue;
    own_heap_ += static_cast<double>(event.value2);
    own_resident_ += static_cast<double>(event.value3);
  }
}

void RankJudge::AddStep(const StepRecord& record) {
  if (last_step_ == 0) other_memory_ = std::max(0.0, Bytes(record.rss_bytes));
  series::Point point;
  point.step = record.step;
  point.time_s = static_cast<double>(record.mono_ns) * 1e-9;
  point.phase = PhaseOf(record.phase);
  auto add = [&](Fixed id, const char* name, double value, double peak = series::Point::kUnknown) {
    if (!std::isfinite(value)) return;
    series::Point next = point;
    next.value = value;
    next.peak = peak;
    if (!fixed_[id]) fixed_[id] = &PoolOf(name, value);
    fixed_[id]->engine->Add(next);
    Show(*fixed_[id], next.step, value);
  };
  if (exact_cpu_) add(kCpu, "cpu", Bytes(record.cpu_bytes), Bytes(record.cpu_peak_bytes));
  add(kHeap, "heap", Bytes(record.heap_bytes) - own_heap_);
  if (exact_cpu_) {
    // A workload that grows shows in what tensors take within the step: graph nodes and buffers that follow it are no leak.
    const double rest = Bytes(record.heap_bytes) - own_heap_ - Bytes(record.cpu_bytes);
    add(kRest, "rest", rest, rest + Bytes(record.cpu_peak_bytes) - Bytes(record.cpu_bytes));
  }
  add(kPython, "python", kPythonBlockBytes * Bytes(record.python_blocks));
  add(kHost, "host", Bytes(record.rss_bytes) - own_resident_);
  if (reports_) add(kShm, "shm", Bytes(record.shm_tensor_bytes));
  if (record.fds >= 0) add(kFds, "fds", record.fds);
  last_step_ = record.step;
}

void RankJudge::AddDevices(const record::Ring& ring, uint64_t until_step) {
  const auto& records = ring.devices();
  auto at = std::upper_bound(records.begin(), records.end(), last_device_step_,
                             [](uint64_t step, const record::DeviceRecord& record) { return step < record.step; });
  for (; at != records.end() && at->step <= until_step; ++at) {
    last_device_step_ = at->step;
    if (at->allocated_bytes == kAbsent) continue;
    series::Point point;
    point.step = at->step;
    point.time_s = static_cast<double>(at->mono_ns) * 1e-9;
    point.phase = PhaseOf(at->phase);
    point.value = Bytes(at->allocated_bytes);
    point.reserved = Bytes(at->reserved_bytes);
    point.peak = Bytes(at->peak_bytes);
    Add(record::DeviceName(at->type, at->index), point);
  }
}

// Bytes that a worker's own censuses had taken by then: the worker leaves them in a file beside its rank's ring.
double RankJudge::OwnBytes(const record::Ring& ring, const record::WorkerRecord& record) {
  auto [at, fresh] = worker_censuses_.try_emplace(record.pid);
  auto& [seen, lines] = at->second;
  if (fresh || record.mono_ns > seen + 2'000'000'000) {
    seen = record.mono_ns;
    lines.clear();
    std::filesystem::path folder = std::filesystem::path(ring.path()).parent_path();
    std::ifstream file(folder / fmt::format("census-worker-{}.txt", record.pid));
    int64_t moment = 0;
    for (double bytes = 0; file >> moment >> bytes;) lines.emplace_back(moment, bytes);
  }
  double own = 0;
  for (const auto& [moment, bytes] : lines) own += moment <= record.mono_ns ? bytes : 0;
  return own;
}

// Samples of one moment share a step: their sum is the pool's figure.
void RankJudge::AddWorkers(const record::Ring& ring) {
  const auto& workers = ring.workers();
  while (workers_seen_ < workers.size()) {
    size_t end = workers_seen_;
    series::Point point;
    point.step = workers[end].step;
    point.time_s = static_cast<double>(workers[end].mono_ns) * 1e-9;
    for (; end < workers.size() && workers[end].step == point.step; ++end) {
      if (!workers[end].alive || workers[end].rss_anon_bytes == kAbsent) continue;
      point.value += Bytes(workers[end].rss_anon_bytes) - OwnBytes(ring, workers[end]);
    }
    workers_seen_ = end;
    if (point.value > 0) Add("workers", point);
  }
}

// What the driver counts on a device less what this process's allocator has reserved there: CUDA contexts, NCCL, other
// processes. The driver is asked at moments of its own: the newest step before each says what was reserved.
void RankJudge::AddDriver(const record::Ring& ring) {
  const auto samples = driver_.Read(ring);
  const auto& devices = ring.devices();
  for (const DriverSample& sample : samples) {
    if (sample.total_bytes > 0 && !options_.capacity) {
      device_capacity_.try_emplace(record::DeviceName(1, sample.index), static_cast<double>(sample.total_bytes));
    }
    auto at = std::find_if(devices.rbegin(), devices.rend(), [&](const record::DeviceRecord& record) {
      return record.type == 1 && record.index == sample.index && record.mono_ns <= sample.mono_ns;
    });
    if (at == devices.rend()) continue;
    series::Point point;
    point.step = at->step;
    point.time_s = static_cast<double>(sample.mono_ns) * 1e-9;
    point.phase = PhaseOf(at->phase);
    point.value = std::max(0.0, static_cast<double>(sample.used_bytes - at->reserved_bytes));
    Add(fmt::format("device-other:{}", sample.index), point);
  }
}

// Looks that lie between the last step and `until_step`: an engine wants each at its own time.
void RankJudge::AddLooks(const std::vector<record::LedgerLook>& looks, size_t& next, uint64_t until_step) {
  for (; next < looks.size() && looks[next].step <= until_step; ++next) {
    const record::LedgerLook& look = looks[next];
    if (look.step <= last_look_) continue;
    last_look_ = look.step;
    std::map<std::string, std::vector<verdict::LedgerRow>> rows;
    for (const record::LedgerRow& row : look.rows) {
      rows[row.pool].push_back({row.first_step, row.last_step, PhaseOf(row.phase), static_cast<double>(row.bytes),
                                static_cast<double>(row.blocks)});
    }
    for (auto& [name, pool] : pools_) {
      bool device = name.find(':') != std::string::npos && name.rfind("device-other", 0) != 0;
      bool kept = name == "cpu" || (reports_ && (name == "shm" || device));
      if (kept) pool.engine->SetLedger(rows[name]);
    }
  }
}

void RankJudge::Add(const std::string& name, series::Point point) {
  Pool& pool = PoolOf(name, point.value);
  pool.engine->Add(point);
  Show(pool, point.step, point.value);
}

RankJudge::Pool& RankJudge::PoolOf(const std::string& name, double first_value) {
  Pool& pool = pools_[name];
  if (pool.engine) return pool;
  verdict::EngineOptions options;
  options.pool = name == "python" || name == "rest" ? "heap" : name;
  options.rank = rank_;
  if (auto known = device_capacity_.find(name); known != device_capacity_.end()) options.capacity = known->second;
  bool in_process = name == "cpu" || name == "heap" || name == "rest" || name == "python" || name == "host";
  // What the process holds beside this pool counts against the same limit.
  if (in_process && limit_ > 0) options.capacity = limit_ - std::max(0.0, other_memory_ - first_value);
  pool.capacity = options.capacity;
  pool.engine = std::make_unique<verdict::Engine>(options);
  return pool;
}

}  // namespace lowtide::cli
