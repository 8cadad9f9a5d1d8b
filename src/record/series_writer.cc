#include "record/series_writer.h"

namespace lowtide::record {

void MergeLater(SeriesRecord& into, const SeriesRecord& later) noexcept {
  into.last_step = later.last_step;
  into.mono_ns = later.mono_ns;
  into.cpu_last = later.cpu_last;
  into.cpu_peak = std::max(into.cpu_peak, later.cpu_peak);
  Merge(into.cpu, later.cpu);
  Merge(into.heap, later.heap);
  Merge(into.python_blocks, later.python_blocks);
  Merge(into.rss, later.rss);
  Merge(into.shared, later.shared);
  Merge(into.shm_used, later.shm_used);
  Merge(into.shm_tensor, later.shm_tensor);
  Merge(into.fds, later.fds);
  Merge(into.blocks, later.blocks);
  into.phases |= later.phases;
  const uint64_t wait = static_cast<uint64_t>(into.data_wait_us) + later.data_wait_us;
  into.data_wait_us = static_cast<uint32_t>(std::min<uint64_t>(wait, UINT32_MAX));
  into.epoch = later.epoch;
}

void MergeLater(DeviceSeriesRecord& into, const DeviceSeriesRecord& later) noexcept {
  into.last_step = later.last_step;
  into.mono_ns = later.mono_ns;
  Merge(into.allocated, later.allocated);
  Merge(into.reserved, later.reserved);
  into.peak_bytes = std::max(into.peak_bytes, later.peak_bytes);
  into.allocated_last = later.allocated_last;
  into.phases |= later.phases;
}

SeriesRecord AsSeries(const StepRecord& step) noexcept {
  SeriesRecord out{};
  out.first_step = out.last_step = step.step;
  out.mono_ns = step.mono_ns;
  out.cpu_last = step.cpu_bytes;
  out.cpu_peak = step.cpu_peak_bytes;
  out.cpu = Single(step.cpu_bytes);
  out.heap = Single(step.heap_bytes);
  out.python_blocks = Single(step.python_blocks);
  out.rss = Single(step.rss_bytes);
  out.shared = Single(step.shared_bytes);
  out.shm_used = Single(step.shm_used_bytes);
  out.shm_tensor = Single(step.shm_tensor_bytes);
  out.fds = Single(step.fds < 0 ? kAbsent : step.fds);
  out.blocks = Single(step.cpu_blocks);
  out.phases = 1u << static_cast<uint32_t>(step.phase);
  out.data_wait_us = step.data_wait_us;
  out.epoch = step.epoch;
  return out;
}

DeviceSeriesRecord AsSeries(const DeviceRecord& record) noexcept {
  DeviceSeriesRecord out{};
  out.first_step = out.last_step = record.step;
  out.mono_ns = record.mono_ns;
  out.type = record.type;
  out.index = record.index;
  out.pool = record.pool;
  out.phases = 1u << static_cast<uint32_t>(record.phase);
  out.allocated = Single(record.allocated_bytes);
  out.reserved = Single(record.reserved_bytes);
  out.peak_bytes = record.peak_bytes;
  out.allocated_last = record.allocated_bytes;
  return out;
}

}  // namespace lowtide::record
