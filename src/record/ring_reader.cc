#include "record/ring_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "record/ledger_reader.h"
#include "record/looks.h"
#include "record/ring_file.h"
#include "lowtide/record/slot.h"

namespace lowtide::record {
namespace {

constexpr int kTries = 8;        // of a slot that is being written
constexpr double kSilence = 600;  // seconds after which another host's process counts as gone
constexpr uint64_t kInFlight = 4;  // the newest records may still be under the pen

// Where a ring section was read up to, and what came out of it.
template <typename Record>
struct Cursor {
  uint64_t next = 0;
  std::vector<Record> records;
};

// Reads what the section gained since. Two equal copies and a fitting checksum make a whole slot: the writer needs
// far less time for a slot than lies between two reads.
template <typename Record>
size_t Advance(const RingFile& file, SectionId id, Cursor<Record>& cursor, ReadLoss& loss) {
  const Section& section = file.header().sections[id];
  if (section.count == 0 || section.head <= cursor.next) return 0;
  if (section.head - cursor.next > section.count) {
    loss.overwritten += section.head - section.count - cursor.next;
    cursor.next = section.head - section.count;
  }
  size_t added = 0;
  std::vector<Slot<Record>> once, again;
  while (cursor.next < section.head) {
    const uint64_t index = cursor.next % section.count;
    const uint64_t run = std::min<uint64_t>({section.count - index, section.head - cursor.next, 4096});
    const uint64_t number = cursor.next;
    bool pending = false;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      file.ReadTwice(section, index, run, once, again);
      if (once.size() == run) break;
    }
    for (uint64_t i = 0; i < run && !pending; ++i) {
      const bool whole = i < once.size() && std::memcmp(&once[i], &again[i], sizeof(once[i])) == 0 &&
                         SlotWhole(once[i], id);
      if (whole && once[i].header.sequence == 2 * (number + i) + 2) {
        cursor.records.push_back(once[i].record);
        ++added;
      } else if (whole && once[i].header.sequence > 2 * (number + i) + 2) {
        ++loss.overwritten;
      } else if (number + i + kInFlight >= section.head && i < once.size()) {
        pending = true;  // not whole yet: the next Refresh sees it, or it never became whole
        break;
      } else {
        ++loss.torn;
      }
      ++cursor.next;
    }
    if (pending) break;
  }
  // A watcher of a run of millions of steps keeps no more than the file itself.
  if (cursor.records.size() > 2ull * section.count) {
    cursor.records.erase(cursor.records.begin(), cursor.records.end() - section.count);
  }
  return added;
}

// The entries of a series, in order of steps; while pairs are being merged old and new ones lie side by side, and
// an entry that begins before the last one ended is such a leftover.
template <typename Record>
std::vector<Record> InOrder(const std::vector<Slot<Record>>& slots, size_t first, size_t count, SectionId id) {
  std::vector<Record> out;
  uint64_t covered = 0;
  for (size_t i = first; i < std::min(first + count, slots.size()); ++i) {
    if (!SlotWhole(slots[i], id) || slots[i].record.first_step <= covered) continue;
    if (slots[i].record.last_step < slots[i].record.first_step) continue;
    out.push_back(slots[i].record);
    covered = slots[i].record.last_step;
  }
  return out;
}

template <typename Record>
std::vector<Slot<Record>> StableSlots(const RingFile& file, SectionId id) {
  std::vector<Slot<Record>> once, again;
  const Section& section = file.header().sections[id];
  for (int attempt = 0; attempt < kTries; ++attempt) {
    file.ReadTwice(section, 0, section.count, once, again);
    if (once.empty() || std::memcmp(once.data(), again.data(), once.size() * sizeof(once[0])) == 0) break;
  }
  return once;
}

}  // namespace

struct Ring::State {
  explicit State(const std::string& path) : file(path) {}
  RingFile file;
  Cursor<StepRecord> steps;
  Cursor<DeviceRecord> devices;
  Cursor<WorkerRecord> workers;
  Cursor<MarkRecord> marks;
  Cursor<EventRecord> events;
  Cursor<LookRecord> looks;
  ReadLoss loss, looks_loss;  // looks are made to be given up
};

Ring::Ring(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ring::Ring(Ring&&) noexcept = default;
Ring& Ring::operator=(Ring&&) noexcept = default;
Ring::~Ring() = default;

Ring Ring::Open(const std::string& path) {
  Ring ring(std::make_unique<State>(path));
  ring.Refresh();
  return ring;
}

size_t Ring::Refresh() {
  State& s = *state_;
  s.file.RefreshHeader();
  s.loss.cut = s.file.cut();
  const size_t added = Advance(s.file, kSteps, s.steps, s.loss);
  Advance(s.file, kDevices, s.devices, s.loss);
  Advance(s.file, kWorkers, s.workers, s.loss);
  Advance(s.file, kMarks, s.marks, s.loss);
  Advance(s.file, kEvents, s.events, s.loss);
  Advance(s.file, kLooks, s.looks, s.looks_loss);
  return added;
}

const std::string& Ring::path() const { return state_->file.path(); }
const FileHeader& Ring::header() const { return state_->file.header(); }
const std::vector<StepRecord>& Ring::steps() const { return state_->steps.records; }
const std::vector<DeviceRecord>& Ring::devices() const { return state_->devices.records; }
const std::vector<WorkerRecord>& Ring::workers() const { return state_->workers.records; }
const std::vector<MarkRecord>& Ring::marks() const { return state_->marks.records; }
const std::vector<EventRecord>& Ring::events() const { return state_->events.records; }
const ReadLoss& Ring::loss() const { return state_->loss; }

std::vector<SeriesRecord> Ring::Series() const {
  const auto slots = StableSlots<SeriesRecord>(state_->file, kSeries);
  return InOrder(slots, 0, slots.size(), kSeries);
}

std::vector<DeviceSeriesRecord> Ring::DeviceSeries() const {
  const auto slots = StableSlots<DeviceSeriesRecord>(state_->file, kDeviceSeries);
  const size_t each = header().sections[kDeviceSeries].count / kMaxDevices;
  std::vector<DeviceSeriesRecord> out;
  for (size_t device = 0; device < kMaxDevices; ++device) {
    const auto one = InOrder(slots, device * each, each, kDeviceSeries);
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

std::vector<LedgerRow> Ring::Ledger() const { return LedgerReader(state_->file).Rows(); }
std::vector<LedgerLook> Ring::Looks() const { return GroupLooks(header(), state_->looks.records); }
uint64_t Ring::newest_look() const {
  const auto& looks = state_->looks.records;
  return looks.empty() ? 0 : looks.back().step;
}
std::vector<SizeRow> Ring::Sizes() const { return LedgerReader(state_->file).Sizes(); }
std::vector<PoolTotals> Ring::Totals() const { return LedgerReader(state_->file).Totals(); }

std::vector<WorkerEntry> Ring::WorkerTable() const {
  std::vector<WorkerEntry> entries = state_->file.ReadAll<WorkerEntry>(header().sections[kWorkerTable]);
  std::erase_if(entries, [](const WorkerEntry& entry) { return entry.pid <= 0; });
  return entries;
}

double Ring::WallTime(int64_t mono_ns) const {
  return (static_cast<double>(header().start_wall_ns) + static_cast<double>(mono_ns - header().start_mono_ns)) / 1e9;
}

bool Ring::RequestCensus() {
  const uint64_t number = header().control.census_request + 1;
  if (!state_->file.WriteWord(offsetof(FileHeader, control.census_request), number)) return false;
  state_->file.RefreshHeader();
  return true;
}

bool Ring::RequestStopAt(uint64_t step, StopReason reason) {
  return state_->file.WriteWord(offsetof(FileHeader, control.stop_reason), static_cast<uint64_t>(reason)) &&
         state_->file.WriteWord(offsetof(FileHeader, control.stop_at_step), step);
}

// Of another host only its own words can be had: it has not ended, and wrote lately. Whose ring lay in its host's memory
// and can be read here has been brought home: no one writes it any more.
bool Ring::WroteLately() const {
  if (header().exit_state != ExitState::kRunning || (header().capabilities & kCapRingInShm)) return false;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const int64_t last = steps().empty() ? header().start_mono_ns : steps().back().mono_ns;
  return static_cast<double>(now.tv_sec) < WallTime(last) + kSilence;
}

// A process that started after this file was begun is another one with the same number.
bool Ring::WriterAlive() const {
  const int pid = header().pid;
  if (pid <= 0) return false;
  char host[sizeof(header().hostname)] = {};
  ::gethostname(host, sizeof host - 1);
  if (header().hostname[0] != 0 && std::strcmp(host, header().hostname) != 0) return WroteLately();
  FILE* stat = std::fopen(fmt::format("/proc/{}/stat", pid).c_str(), "re");
  if (stat == nullptr) return false;
  char line[1024] = {};
  const size_t length = std::fread(line, 1, sizeof(line) - 1, stat);
  std::fclose(stat);
  const char* rest = length > 0 ? std::strrchr(line, ')') : nullptr;
  char state = 0;
  unsigned long long start_ticks = 0;
  if (rest == nullptr || std::sscanf(rest + 1,
                                     " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                                     "%*d %llu", &state, &start_ticks) != 2) {
    return false;
  }
  if (state == 'Z' || state == 'X') return false;
  const double started = static_cast<double>(start_ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  timespec boot{}, mono{};
  ::clock_gettime(CLOCK_BOOTTIME, &boot);
  ::clock_gettime(CLOCK_MONOTONIC, &mono);
  const double asleep = static_cast<double>(boot.tv_sec - mono.tv_sec);
  return started <= static_cast<double>(header().start_mono_ns) / 1e9 + asleep + 1.5;
}

std::string DeviceName(int type, int index) {
  switch (type) {
    case 0: return "cpu";
    case 1: return fmt::format("cuda:{}", index);
    case 12: return fmt::format("xpu:{}", index);
    case 13: return fmt::format("mps:{}", index);
    case 20: return fmt::format("privateuse:{}", index);
    default: return fmt::format("device{}:{}", type, index);
  }
}

}  // namespace lowtide::record
