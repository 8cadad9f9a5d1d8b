#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/driver_log.h"
#include "record/ring_reader.h"
#include "report/run_view.h"
#include "verdict/engine.h"

namespace lowtide::cli {

struct JudgeOptions {
  uint64_t capacity = 0;  // bytes of each device; 0: as recorded
};

// From one rank's ring to judgements: every pool that the ring has figures of gets an engine. Fed as the ring grows, or at
// once from a finished one.
class RankJudge {
 public:
  explicit RankJudge(JudgeOptions options = {}) : options_(options) {}

  // Takes what came since the last call.
  void Update(const record::Ring& ring);
  // `final`: nothing more will come.
  std::vector<verdict::Judgement> Judge(bool final);

  // Whether any pool that can leak has grown beyond chance; the moment to ask who holds it.
  bool Suspicious();
  uint64_t steps() const { return last_step_; }
  // Every pool's series, merged to fewer than twice `most` points.
  std::vector<report::SeriesView> Series(size_t most = SIZE_MAX) const;
  // A pool's newest figure, and the lower edge of the newest stretch: bytes, of `fds` numbers.
  struct Level {
    double now = 0, floor = 0;
  };
  std::map<std::string, Level> Now() const;

 private:
  struct Pool {
    std::unique_ptr<verdict::Engine> engine;
    std::vector<report::SeriesView::Point> shown;  // thinned by doubling `stride`
    uint64_t stride = 1;
    double now = 0;  // the newest value
    std::optional<double> capacity;
  };

  void Start(const record::Ring& ring);
  void AddWholeRun(const record::Ring& ring);
  void AddSteps(const record::Ring& ring);
  void AddStep(const record::StepRecord& record);
  void NoteCensuses(const record::Ring& ring, uint64_t before_step);
  void AddDevices(const record::Ring& ring, uint64_t until_step);
  void AddWorkers(const record::Ring& ring);
  void AddDriver(const record::Ring& ring);
  void NoteCapacities(const record::Ring& ring);
  double OwnBytes(const record::Ring& ring, const record::WorkerRecord& record);
  void AddMarks(const record::Ring& ring, uint64_t until_step);
  void AddLooks(const std::vector<record::LedgerLook>& looks, size_t& next, uint64_t until_step);
  void Add(const std::string& pool, series::Point point);
  Pool& PoolOf(const std::string& name, double first_value);
  void Show(Pool& pool, uint64_t step, double value);

  JudgeOptions options_;
  int rank_ = 0;
  bool started_ = false, exact_cpu_ = false, reports_ = false;
  double limit_ = 0;                    // of the process, bytes; 0: unknown
  double other_memory_ = 0;             // resident bytes at the first sample
  std::map<std::string, double> device_capacity_;
  DriverReader driver_;
  std::map<std::string, Pool> pools_;
  enum Fixed { kCpu, kHeap, kRest, kPython, kHost, kShm, kFds, kFixedCount };
  Pool* fixed_[kFixedCount] = {};  // those of every process, into `pools_`: asked for at each step
  uint64_t last_step_ = 0, last_device_step_ = 0, last_look_ = 0;
  size_t marks_seen_ = 0, workers_seen_ = 0, events_seen_ = 0;
  // By pid: when the file was read last, and (moment in ns, bytes) of each census.
  std::map<int32_t, std::pair<int64_t, std::vector<std::pair<int64_t, double>>>> worker_censuses_;
  double own_heap_ = 0, own_resident_ = 0;  // bytes that censuses took
};

// The verdicts of one rank's pools seen together: one cause shows in several pools (a tensor's bytes in `cpu`, `heap` and
// `host`), and resident memory alone proves no leak in a short run. Changes `judgements` in place; returns for each the
// index of the one that explains it, or its own.
std::vector<size_t> Reconcile(std::vector<verdict::Judgement>& judgements);

// Verdicts of all ranks (each reconciled here) and the findings that they lead to, added to `document`.
void AddVerdicts(std::vector<std::vector<verdict::Judgement>>& ranks, finding::Document& document);

// Everything about the run in `folder`: judged from its rings, with the holders and findings that the ranks left there.
// Throws Error when there is no ring.
report::RunView JudgeFolder(const std::string& folder, const JudgeOptions& options);

// The same for a run that left no ring: it says so, and shows what the ranks left besides.
report::RunView UnrecordedRun(const std::string& folder);

}  // namespace lowtide::cli
