// The whole run in a fixed array: each entry stands for `stride` steps, and when the array is full neighbours are
// merged (least and greatest kept) and the stride doubles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lowtide/record/slot.h"

namespace lowtide::record {

inline void Merge(MinMax& into, const MinMax& other) noexcept {
  if (other.min == kAbsent) return;
  into.min = into.min == kAbsent ? other.min : std::min(into.min, other.min);
  into.max = std::max(into.max, other.max);  // kAbsent is the least of all
}
inline MinMax Single(int64_t value) noexcept { return {value, value}; }

void MergeLater(SeriesRecord& into, const SeriesRecord& later) noexcept;
void MergeLater(DeviceSeriesRecord& into, const DeviceSeriesRecord& later) noexcept;
SeriesRecord AsSeries(const StepRecord& step) noexcept;
DeviceSeriesRecord AsSeries(const DeviceRecord& record) noexcept;

template <typename Record>
class SeriesWriter {
 public:
  void Bind(Slot<Record>* slots, uint32_t count, SectionId kind) noexcept {
    slots_ = slots, capacity_ = count & ~1u, kind_ = kind;
  }
  uint32_t stride() const noexcept { return stride_; }
  uint32_t entries() const noexcept { return used_; }

  // `step` numbers may skip; an entry is full once its range of steps is over.
  void Add(const Record& one) noexcept {
    if (capacity_ == 0) return;
    if (held_ > 0 && one.last_step > range_end_) Flush();
    if (held_++ == 0) {
      current_ = one;
      range_end_ = ((one.last_step - 1) / stride_ + 1) * stride_;
    } else {
      MergeLater(current_, one);
    }
    if (one.last_step >= range_end_) Flush();
  }

 private:
  void Flush() noexcept {
    WriteSlot(&slots_[used_], used_, kind_, current_);
    held_ = 0;
    if (++used_ == capacity_) Halve();
  }

  // Pair (2 i, 2 i + 1) goes to slot i, upwards: a writer killed in between leaves every step readable, since what
  // was not merged yet still stands, and what was merged shows by its steps (Ring::Series drops the overlap).
  void Halve() noexcept {
    const uint32_t half = capacity_ / 2;
    for (uint32_t i = 0; i < half; ++i) {
      Record merged = slots_[2 * i].record;
      MergeLater(merged, slots_[2 * i + 1].record);
      WriteSlot(&slots_[i], i, kind_, merged);
    }
    used_ = half;
    stride_ *= 2;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (uint32_t i = half; i < capacity_; ++i) __atomic_store_n(&slots_[i].header.sequence, 0, __ATOMIC_RELAXED);
  }

  Slot<Record>* slots_ = nullptr;
  uint32_t capacity_ = 0, used_ = 0, stride_ = 1, held_ = 0;
  uint64_t range_end_ = 0;
  SectionId kind_ = kSeries;
  Record current_{};
};

// ---- implementation ----

inline void MergeLater(SeriesRecord& into, const SeriesRecord& later) noexcept {
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

inline void MergeLater(DeviceSeriesRecord& into, const DeviceSeriesRecord& later) noexcept {
  into.last_step = later.last_step;
  into.mono_ns = later.mono_ns;
  Merge(into.allocated, later.allocated);
  Merge(into.reserved, later.reserved);
  into.peak_bytes = std::max(into.peak_bytes, later.peak_bytes);
  into.allocated_last = later.allocated_last;
  into.phases |= later.phases;
}

inline SeriesRecord AsSeries(const StepRecord& step) noexcept {
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

inline DeviceSeriesRecord AsSeries(const DeviceRecord& record) noexcept {
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
