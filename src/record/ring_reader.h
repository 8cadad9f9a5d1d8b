#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lowtide/record/ring_format.h"

namespace lowtide::record {

// Bytes that are still alive, by when they were born. A leak is births that never die.
struct LedgerRow {
  std::string pool;                 // "cpu", "shm", "cuda:0"
  Phase phase = Phase::kStep;       // of birth
  uint64_t first_step = 0;          // births after `first_step` steps had ended ...
  uint64_t last_step = 0;           // ... to `last_step`, both included; 0 is before the first step's end
  int64_t bytes = 0, blocks = 0;    // alive now
};

// The ledger as it stood when `step` steps had ended.
struct LedgerLook {
  uint64_t step = 0;
  std::vector<LedgerRow> rows;
};

// What is alive, by size: `min_bytes` is the smallest size in the class (four classes per power of two).
struct SizeRow {
  std::string pool;
  uint64_t min_bytes = 0;
  int64_t bytes = 0, blocks = 0;
};

// A pool's totals as the in-process half keeps them.
struct PoolTotals {
  std::string pool;
  int64_t bytes = 0, blocks = 0;
  uint64_t births = 0, deaths = 0;
  int64_t reserved_bytes = kAbsent;  // devices only
};

struct ReadLoss {
  uint64_t torn = 0;         // slots whose checksum or sequence did not fit
  uint64_t overwritten = 0;  // records that the ring had already given up (the series still covers them)
  bool cut = false;          // the file ends before its last section
};

// A ring file, readable while it is written, after kill -9, and when cut at any byte: what is whole is read, the
// rest is counted in `loss()`. Nothing is mapped, so that a file that shrinks cannot crash its reader.
//
//   Ring ring = Ring::Open("run/rank0.ring");      // throws Error: no file, not a ring, other version, no header
//   while (...) { ring.Refresh(); for (auto& s : ring.steps()) ... }
class Ring {
 public:
  static Ring Open(const std::string& path);
  Ring(Ring&&) noexcept;
  Ring& operator=(Ring&&) noexcept;
  ~Ring();

  // Reads what was written since; returns the number of new step samples. Throws Error when the file is gone.
  size_t Refresh();

  const std::string& path() const;
  const FileHeader& header() const;                          // as of the last Refresh
  const std::vector<StepRecord>& steps() const;              // in order; gaps where slots were torn or overwritten
  const std::vector<DeviceRecord>& devices() const;
  const std::vector<WorkerRecord>& workers() const;
  const std::vector<MarkRecord>& marks() const;
  const std::vector<EventRecord>& events() const;
  const ReadLoss& loss() const;

  // The whole run, `header().series_stride` steps per entry, without the newest entry that is not full yet: the
  // tail is in steps(). Read anew on every call.
  std::vector<SeriesRecord> Series() const;
  std::vector<DeviceSeriesRecord> DeviceSeries() const;
  std::vector<LedgerRow> Ledger() const;                     // rows with something alive (or a non-zero count)
  // Looks at the ledger that the process took as it went, oldest first: each a twelfth or so later than the one before.
  // When the process has ended the ledger itself is empty, since the interpreter frees all it can.
  std::vector<LedgerLook> Looks() const;
  uint64_t newest_look() const;                              // its step; 0 without one
  std::vector<SizeRow> Sizes() const;
  std::vector<PoolTotals> Totals() const;
  std::vector<WorkerEntry> WorkerTable() const;

  // Seconds since 1970 of a monotonic time stamp of this file.
  double WallTime(int64_t mono_ns) const;
  // Asks through the control words; false when the file cannot be written. Returns at once.
  bool RequestCensus();                                      // answered when header().control.census_done follows
  bool RequestStopAt(uint64_t step, StopReason reason = StopReason::kAsked);
  // Whether the process that writes still runs: by pid and the time of its start; on another host by what it wrote.
  bool WriterAlive() const;

 private:
  bool WroteLately() const;
  struct State;
  explicit Ring(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// "cpu", "shm", "cuda:1" ...: names of pools as reports print them.
std::string DeviceName(int type, int index);

// The ring files of a run folder (rank*.ring, launcher*.ring, observer.ring), followed into /dev/shm where they
// still lie there; sorted by rank, launchers last. Empty when there are none.
std::vector<std::string> ListRings(const std::string& directory);

}  // namespace lowtide::record
