// Exact bytes of tensors, by standing in the slots through which PyTorch's libraries call each other:
//   c10::alloc_cpu / c10::free_cpu           cpu storages (c10/core/impl/alloc_cpu.cpp)
//   c10::reportMemoryUsageToProfiler         caching allocators of devices, shared-memory tensors (c10/core/Allocator.h)
//   c10::reportOutOfMemoryToProfiler         a device allocator about to raise
// Nothing of PyTorch is linked. Once in place the hooks stay: a block that carries a mark must meet the hook when
// it is freed.
#pragma once

#include <cstdint>

#include "lowtide/record/ring_writer.h"

namespace lowtide::record {

struct TrackerReport {
  uint64_t capabilities = 0;  // Capability bits
  char hooks[1024] = {};      // "libtorch_cpu.so: alloc_cpu free_cpu report; ..."
};

// Counts into `ring`, whose memory must stay where it is for ever. Idempotent: when more libraries were loaded since,
// their slots are patched too. `definer` is libc10's file name (tests pass a stand-in); `force_table` makes it
// remember sizes in a table although marks behind the blocks would do. The report names what this call has patched.
TrackerReport StartTracker(RingWriter* ring, const char* definer = "libc10.so", bool force_table = false) noexcept;

// The steps that ended so far, and the phase that what is born from now on belongs to.
void SetClock(uint64_t steps_ended, Phase phase) noexcept;

struct CpuFigures {
  int64_t bytes, blocks, peak;  // peak: since the step that SetClock named
};
CpuFigures ReadCpu() noexcept;
int64_t ReadSharedTensorBytes() noexcept;

struct DeviceFigures {
  int64_t allocated, reserved, peak, blocks;
  uint32_t ooms;
};
// Device `pool` (entry of FileHeader::devices). False when it is not in use. Starts the next step's peak.
bool ReadDevice(uint32_t pool, DeviceFigures* figures) noexcept;
// Figures of a device whose allocator makes no reports, as PyTorch's statistics have them.
void NoteDevice(int type, int index, const DeviceFigures& figures) noexcept;

// In a forked child, before anything else: the parent's counters are not the child's. From here on it counts into
// `ring`, and what the parent made is none of its own. Without a ring it counts nothing more.
void RestartTrackerInChild(RingWriter* ring) noexcept;

// Called (on any thread, possibly without the interpreter's lock) when an allocation has failed.
using OomCallback = void (*)(int device_type, int device_index, int64_t asked, int64_t allocated, int64_t reserved);
void SetOomCallback(OomCallback callback) noexcept;

// The hooks themselves, for tests and benchmarks: `Alloc` as c10::alloc_cpu would be called.
namespace testing {
void* HookedAlloc(size_t bytes);
void HookedFree(void* block);
void HookedReport(void* block, int64_t size, size_t allocated, size_t reserved, int type, int index);
void UseAllocator(RingWriter* ring, void* (*alloc)(size_t), void (*release)(void*), bool in_table) noexcept;
}  // namespace testing

}  // namespace lowtide::record
