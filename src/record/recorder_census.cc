// The recorder's censuses: asked for by a word in the ring, answered there, and told apart from the program's growth.
#include <utility>

#include "lowtide/record/figures.h"
#include "lowtide/record/host.h"
#include "record/recorder.h"

namespace lowtide::record {

uint64_t Recorder::census_request() const noexcept {
  return ring_.open() ? __atomic_load_n(&ring_.header()->control.census_request, __ATOMIC_RELAXED) : 0;
}

void Recorder::CensusBegins(int64_t mapped_bytes, int64_t heap_bytes) noexcept {
  heap_before_census_ = options_.heap ? ReadHeap() - heap_bytes : kAbsent;
  rss_before_census_ = ReadStatm(proc_root_, 0).rss_bytes - mapped_bytes - heap_bytes;
}

void Recorder::CensusDone(uint64_t request, int64_t pause_ns, int64_t status) noexcept {
  if (!started_) return;
  CensusPaused(pause_ns, status);
  Control& control = ring_.header()->control;
  control.census_step = steps_;
  control.census_pause_ns = std::exchange(census_pause_ns_, 0);
  control.census_status = status;
  __atomic_store_n(&control.census_done, request, __ATOMIC_RELEASE);
}

void Recorder::CensusPaused(int64_t pause_ns, int64_t status) noexcept {
  if (!started_) return;
  census_pause_ns_ += static_cast<uint64_t>(pause_ns);
  EventRecord record{};
  record.step = steps_;
  record.mono_ns = MonotonicNs();
  record.kind = EventKind::kCensus;
  record.code = static_cast<int32_t>(status);
  record.value = pause_ns;
  record.value2 = heap_before_census_ == kAbsent ? 0 : ReadHeap() - heap_before_census_;
  record.value3 = ReadStatm(proc_root_, 0).rss_bytes - rss_before_census_;
  ring_.Write(record);
}

}  // namespace lowtide::record
