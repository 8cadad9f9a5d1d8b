#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "series/point.h"
#include "verdict/judgement.h"
#include "verdict/ledger.h"

namespace lowtide::verdict {

struct EngineOptions {
  std::string pool = "cuda:0";
  int rank = 0;
  int ranks = 1;                     // of the job: each has its share of the false alarms
  std::optional<double> capacity;    // bytes at which the pool is out of memory
  std::optional<double> quantum;     // bytes; default: of the pool
  std::optional<double> min_growth;  // bytes that must have come before LEAK is said; default: of the pool
  Figure figure = Figure::kPool;     // how the texts name it
  bool running_maximum = false;  // the figure is a peak since the start: it never falls, so rises prove less
  std::optional<double> planned_steps;  // of the whole run
};

// Judges one pool of one rank while it runs, in constant memory (about 35 KB) and well under a microsecond
// per sample. The algorithm is in docs/how-it-works.md. Not thread-safe; independent engines are independent.
//
// False alarms: WATCH comes up with probability at most 2e-3 over an unbounded run of exchangeable or
// short-memory noise.
class Engine {
 public:
  explicit Engine(EngineOptions options = {});
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // Points come in order of steps; a step at or before the last one is a restart of the program (the same
  // step again is dropped). Values that are not finite are dropped.
  void Add(const series::Point& point);
  // The event that ran between the last point and the next one (validation, epoch, checkpoint).
  void AddMark(series::Phase phase, uint64_t step);
  // The ledger of births now, at the last point's step. Call it a few times a run: at a third, at two thirds,
  // at the end.
  void SetLedger(std::span<const LedgerRow> rows);
  // A full garbage collection just freed this much (after the last point): cyclic garbage is no leak.
  void AddCollection(double freed_bytes);

  // Any time. `final`: the run is over, or this is all there is to read: short series are judged by what they
  // have.
  Judgement Judge(bool final = false) const;

  uint64_t samples() const;
  // Bytes held by this engine.
  size_t MemoryUsed() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lowtide::verdict
