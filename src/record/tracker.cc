#include "record/tracker.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "record/got.h"
#include "record/ledger.h"
#include "record/pointer_table.h"
#include "record/trailer.h"
#include "record/usable_size.h"

namespace lowtide::record {
namespace {

// c10::Device is two bytes, type and index, and travels in a register.
using ReportFunction = void (*)(void*, int64_t, size_t, size_t, uint16_t);
using OomFunction = void (*)(int64_t, size_t, size_t, uint16_t);

// Blocks from this size on are remembered in the table: a request that fails is then PyTorch's own, and its message
// names the size that the user asked for; nor is the page behind the block touched.
constexpr size_t kLarge = 1 << 20;
constexpr int64_t kMapPage = 4096;
constexpr int64_t kUnsaid = 32 << 10;  // bytes that a thread keeps to itself before it tells the running total

struct State {
  AllocFunction alloc = nullptr;
  FreeFunction release = nullptr;
  ReportFunction report = nullptr;
  OomFunction oom = nullptr;
  OomCallback on_oom = nullptr;
  enum Mode : uint32_t { kMark, kTable, kOff } mode = kOff;
  bool report_off = false;
  uint32_t secret = 0;           // goes into the trailers' magic
  RingWriter* ring = nullptr;
  LedgerShard* shards = nullptr;
  LedgerShard* pools = nullptr;
  Counters* counters = nullptr;
  pthread_key_t thread_end = 0;
};
State g;
LedgerClock clock_;
alignas(64) int64_t running_total = 0;
PointerTable table;
constexpr uint8_t kCpuPool = 255;  // in the table: not one of FileHeader's pools
SlotHook slot_hooks[4];

// A thread's shard; the last bit is set on one that it shares with others. In the static block of thread memory, so
// that a hook reaches it without a call.
__attribute__((tls_model("initial-exec"))) thread_local uintptr_t view = 0;
constexpr uintptr_t kShared = 1;

uint32_t shards_used = 0;  // so that a step need not look at all of them

void NoteUsed(uint32_t count) noexcept {
  uint32_t known = __atomic_load_n(&shards_used, __ATOMIC_RELAXED);
  while (known < count && !__atomic_compare_exchange_n(&shards_used, &known, count, true, __ATOMIC_RELAXED,
                                                       __ATOMIC_RELAXED)) {
  }
}

// A thread's first count: a shard of its own while there are any, else the last one, behind its lock.
__attribute__((noinline)) uintptr_t TakeShard() noexcept {
  const auto thread = static_cast<uint32_t>(::syscall(SYS_gettid));
  for (uint32_t i = 0; i + 1 < kShardCount; ++i) {
    uint32_t nobody = 0;
    if (__atomic_load_n(&g.shards[i].owner, __ATOMIC_RELAXED) == 0 &&
        __atomic_compare_exchange_n(&g.shards[i].owner, &nobody, thread, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
      NoteUsed(i + 1);
      ::pthread_setspecific(g.thread_end, &g.shards[i]);
      return view = reinterpret_cast<uintptr_t>(&g.shards[i]);
    }
  }
  NoteUsed(kShardCount);
  return view = reinterpret_cast<uintptr_t>(&g.shards[kShardCount - 1]) | kShared;
}

void ReleaseShard(void* shard) noexcept {
  if (view == reinterpret_cast<uintptr_t>(shard)) {  // a forked child has forgotten its parent's
    __atomic_store_n(&static_cast<LedgerShard*>(shard)->owner, 0, __ATOMIC_RELEASE);
  }
  view = 0;
}

template <int64_t sign>
inline void CountIn(LedgerShard& shard, int64_t size, Birth birth) noexcept {
  Count<sign>(shard, clock_, size, birth);
  const int64_t pending = Load(shard.pending) + sign * size;
  int64_t total = pending;
  if (__builtin_expect(pending > kUnsaid || pending < -kUnsaid, 0)) {
    total = __atomic_add_fetch(&running_total, pending, __ATOMIC_RELAXED);
    __atomic_store_n(&shard.pending, 0, __ATOMIC_RELAXED);
  } else {
    if (sign > 0) total += __atomic_load_n(&running_total, __ATOMIC_RELAXED);
    __atomic_store_n(&shard.pending, pending, __ATOMIC_RELAXED);
  }
  if (sign > 0) NotePeak(shard, __atomic_load_n(&clock_.step, __ATOMIC_RELAXED), total);
}

template <int64_t sign>
__attribute__((noinline)) void CountShared(uintptr_t mine, int64_t size, Birth birth) noexcept {
  if (mine == 0) mine = TakeShard();
  auto& shard = *reinterpret_cast<LedgerShard*>(mine & ~kShared);
  if (!(mine & kShared)) return CountIn<sign>(shard, size, birth);
  SpinLock hold(shard.lock);
  CountIn<sign>(shard, size, birth);
}

template <int64_t sign>
inline void CountCpu(int64_t size, Birth birth) noexcept {
  const uintptr_t mine = view;
  if (__builtin_expect(mine == 0 || (mine & kShared) != 0, 0)) return CountShared<sign>(mine, size, birth);
  CountIn<sign>(*reinterpret_cast<LedgerShard*>(mine), size, birth);
}

inline void Lost(uint64_t& counter) noexcept { __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED); }

void CountPool(uint32_t pool, int64_t size, Birth birth, int64_t sign) noexcept {
  LedgerShard& shard = g.pools[pool];
  SpinLock hold(shard.lock);
  sign > 0 ? Count<1>(shard, clock_, size, birth) : Count<-1>(shard, clock_, size, birth);
}

void* AllocInTable(size_t bytes) {
  void* block = g.alloc(bytes);
  if (block == nullptr) return block;
  const Birth birth = clock_.now();
  if (table.Insert(block, {static_cast<int64_t>(bytes), birth, kCpuPool})) {
    CountCpu<1>(static_cast<int64_t>(bytes), birth);
  } else {
    Lost(g.counters->untracked_allocs);
  }
  return block;
}

// Exceptions of the allocator pass through: there is nothing to clean up, and this library must not catch what
// another copy of the C++ runtime has thrown.
void* HookAlloc(size_t bytes) {
  if (__builtin_expect(g.mode != State::kMark || bytes >= kLarge, 0)) {
    return g.mode == State::kOff || bytes > INT64_MAX ? g.alloc(bytes) : AllocInTable(bytes);
  }
  if (bytes == 0) return g.alloc(bytes);
  void* block = g.alloc(bytes + sizeof(Trailer));
  if (block == nullptr) return block;
  const size_t usable = ::malloc_usable_size(block);
  const Birth birth = clock_.now();
  WriteTrailer(block, usable, static_cast<int64_t>(bytes), birth, clock_.generation, g.secret);
  CountCpu<1>(static_cast<int64_t>(bytes), birth);
  return block;
}

__attribute__((noinline)) bool Forget(void* block, size_t usable, BlockInfo* info) noexcept {
  if (table.Remove(block, info)) return true;
  return g.mode == State::kMark && TakeTrailer(block, usable, clock_.generation, g.secret, info);
}

__attribute__((noinline)) void ForgetRare(void* block, size_t usable) noexcept {
  BlockInfo info{};
  const bool mine = usable >= kLarge && Forget(block, usable, &info);
  mine ? CountCpu<-1>(info.size, info.birth) : Lost(g.counters->foreign_frees);
}

void HookFree(void* block) {
  if (block != nullptr && g.mode == State::kMark) {
    const size_t usable = ::malloc_usable_size(block);
    BlockInfo info;
    if (__builtin_expect(usable < kLarge && TakeTrailer(block, usable, clock_.generation, g.secret, &info), 1)) {
      CountCpu<-1>(info.size, info.birth);
    } else {
      ForgetRare(block, usable);
    }
  } else if (block != nullptr && g.mode == State::kTable) {
    ForgetRare(block, kLarge);
  }
  g.release(block);
}

// The entry of FileHeader::devices for a device, made at its first report; kMaxDevices when there is no room.
uint32_t DevicePool(int8_t type, int8_t index) noexcept {
  DeviceEntry* devices = g.ring->header()->devices;
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    if (__atomic_load_n(&devices[i].used, __ATOMIC_ACQUIRE) == 0) {
      static uint32_t lock = 0;
      SpinLock hold(lock);
      if (devices[i].used == 0) {
        devices[i].type = type;
        devices[i].index = index;
        devices[i].capacity_bytes = kAbsent;
        __atomic_store_n(&devices[i].used, 1, __ATOMIC_RELEASE);
      }
    }
    if (devices[i].type == type && devices[i].index == index) return i;
  }
  return kMaxDevices;
}

// `size` above 0 is a block made, below 0 a block freed.
void TakeReport(void* block, int64_t size, size_t allocated, size_t reserved, uint16_t device) noexcept {
  const auto type = static_cast<int8_t>(device & 0xff), index = static_cast<int8_t>(device >> 8);
  uint32_t pool = 0;
  if (type != 0) {
    const uint32_t entry = DevicePool(type, index);
    if (entry == kMaxDevices) return Lost(g.counters->lost_devices);
    pool = 1 + entry;
  }
  BlockInfo known{};
  if (table.Remove(block, &known)) {
    if (known.pool < kPoolCount) CountPool(known.pool, known.size, known.birth, -1);  // freed, or made anew
  } else if (size < 0) {
    Lost(g.counters->foreign_frees);
  }
  if (size > 0) {
    // A mapped tensor takes whole pages, however small it is: that is what /dev/shm loses.
    if (pool == 0) size = (size + kMapPage - 1) / kMapPage * kMapPage;
    const Birth birth = clock_.now();
    if (table.Insert(block, {size, birth, static_cast<uint8_t>(pool)})) {
      CountPool(pool, size, birth, 1);
    } else {
      Lost(g.counters->lost_blocks);
    }
  }
  if (pool == 0) return;
  LedgerShard& shard = g.pools[pool];
  SpinLock hold(shard.lock);
  __atomic_store_n(&shard.reported_allocated, static_cast<int64_t>(allocated), __ATOMIC_RELAXED);
  __atomic_store_n(&shard.reported_reserved, static_cast<int64_t>(reserved), __ATOMIC_RELAXED);
  NotePeak(shard, __atomic_load_n(&clock_.step, __ATOMIC_RELAXED), static_cast<int64_t>(allocated));
}

void HookReport(void* block, int64_t size, size_t allocated, size_t reserved, uint16_t device) {
  if (size != 0 && !g.report_off) TakeReport(block, size, allocated, reserved, device);
  g.report(block, size, allocated, reserved, device);
}

void HookOom(int64_t asked, size_t allocated, size_t reserved, uint16_t device) {
  const auto type = static_cast<int8_t>(device & 0xff), index = static_cast<int8_t>(device >> 8);
  const uint32_t entry = type == 0 || g.report_off ? kMaxDevices : DevicePool(type, index);
  if (entry < kMaxDevices) Lost(g.pools[1 + entry].ooms);
  if (g.on_oom != nullptr) {
    g.on_oom(type, index, asked, static_cast<int64_t>(allocated), static_cast<int64_t>(reserved));
  }
  g.oom(asked, allocated, reserved, device);
}

void DescribeHooks(const PatchReport& patched, TrackerReport* report) noexcept {
  static constexpr const char* kNames[] = {" alloc_cpu", " free_cpu", " report", " report_oom"};
  size_t at = 0;
  for (uint32_t i = 0; i < patched.count; ++i) {
    char line[160];
    int length = std::snprintf(line, sizeof(line) - 1, "%s%s:", at == 0 ? "" : "; ", patched.libraries[i].name);
    for (uint32_t hook = 0; hook < 4 && length > 0; ++hook) {
      if (!(patched.libraries[i].hooks >> hook & 1)) continue;
      length += std::snprintf(line + length, sizeof(line) - static_cast<size_t>(length), "%s", kNames[hook]);
      if (static_cast<size_t>(length) >= sizeof(line)) length = sizeof(line) - 1;
    }
    if (length <= 0 || at + static_cast<size_t>(length) >= sizeof(report->hooks)) break;
    std::memcpy(report->hooks + at, line, static_cast<size_t>(length));
    at += static_cast<size_t>(length);
    if (patched.libraries[i].hooks >> 2 & 1) {
      report->capabilities |= kCapReport;
      if (std::strstr(patched.libraries[i].name, "libtorch_cpu") == nullptr) report->capabilities |= kCapDeviceReport;
    }
  }
}

void PointAt(RingWriter* ring) noexcept {
  g.ring = ring;
  g.shards = ring->shards();
  g.pools = ring->pools();
  g.counters = &ring->header()->counters;
}

void FillHooks() noexcept {
  slot_hooks[0] = {"_ZN3c109alloc_cpuE", reinterpret_cast<void*>(&HookAlloc), false, nullptr, 0};
  slot_hooks[1] = {"_ZN3c108free_cpuE", reinterpret_cast<void*>(&HookFree), false, nullptr, 0};
  // In libc10 itself the report is the profiler's own account of cpu blocks: they would count twice.
  slot_hooks[2] = {"_ZN3c1027reportMemoryUsageToProfilerE", reinterpret_cast<void*>(&HookReport), true, nullptr, 0};
  slot_hooks[3] = {"_ZN3c1027reportOutOfMemoryToProfilerE", reinterpret_cast<void*>(&HookOom), true, nullptr, 0};
}

}  // namespace

TrackerReport StartTracker(RingWriter* ring, const char* definer, bool force_table) noexcept {
  TrackerReport report;
  static bool started = false;
  static SlotHook found[4];
  if (!started) {
    if (ring == nullptr || !ring->open()) return report;
    PointAt(ring);
    FillHooks();
    if (::pthread_key_create(&g.thread_end, &ReleaseShard) != 0) return report;
    g.secret = static_cast<uint32_t>(::getpid()) * 2654435761u ^ static_cast<uint32_t>(reinterpret_cast<uintptr_t>(&g) >> 12);
    // First without replacing anything, to learn where the originals are: no hook may run before it knows its own.
    std::memcpy(found, slot_hooks, sizeof(found));
    if (!FindOriginalFunctions(definer, found, 4)) return report;
    g.alloc = reinterpret_cast<AllocFunction>(found[0].original);
    g.release = reinterpret_cast<FreeFunction>(found[1].original);
    g.report = reinterpret_cast<ReportFunction>(found[2].original);
    g.oom = reinterpret_cast<OomFunction>(found[3].original);
    const bool both = g.alloc != nullptr && g.release != nullptr;
    g.mode = !both ? State::kOff : force_table || !UsableSizeTold(definer, g.alloc, g.release) ? State::kTable : State::kMark;
    for (int i = 0; i < 4; ++i) slot_hooks[i].original = found[i].original;
    if (!both) slot_hooks[0].original = slot_hooks[1].original = nullptr;  // never half-count
    started = true;
  }
  PatchReport patched;
  PatchSlots(definer, slot_hooks, 4, &patched);
  DescribeHooks(patched, &report);
  if (slot_hooks[0].slots != 0) report.capabilities |= kCapAllocCpu;
  if (slot_hooks[1].slots != 0) report.capabilities |= kCapFreeCpu;
  if (slot_hooks[3].slots != 0) report.capabilities |= kCapReportOom;
  if (slot_hooks[0].slots != 0 && g.mode == State::kMark) report.capabilities |= kCapTrailer;
  return report;
}

void SetClock(uint64_t steps_ended, Phase phase) noexcept {
  uint32_t shift = clock_.shift;
  while ((steps_ended >> shift) >= kLedgerBuckets) ++shift;
  __atomic_store_n(&clock_.shift, shift, __ATOMIC_RELEASE);  // before a step that would not fit the old one
  const auto row = static_cast<uint8_t>(phase);
  __atomic_store_n(&clock_.phase, row < kLedgerPhases ? row : static_cast<uint8_t>(Phase::kOther), __ATOMIC_RELAXED);
  __atomic_store_n(&clock_.step, static_cast<uint32_t>(steps_ended), __ATOMIC_RELEASE);
}

CpuFigures ReadCpu() noexcept {
  CpuFigures figures{0, 0, 0};
  if (g.shards == nullptr) return figures;
  const uint32_t used = __atomic_load_n(&shards_used, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < used; ++i) {
    const LedgerShard& shard = g.shards[i];
    figures.bytes += Load(shard.bytes);
    figures.blocks += Load(shard.blocks);
    if (__atomic_load_n(&shard.peak_step, __ATOMIC_RELAXED) == clock_.step && Load(shard.peak) > figures.peak) {
      figures.peak = Load(shard.peak);
    }
  }
  if (figures.bytes > figures.peak) figures.peak = figures.bytes;
  return figures;
}

int64_t ReadSharedTensorBytes() noexcept { return g.pools == nullptr ? 0 : Load(g.pools[0].bytes); }

bool ReadDevice(uint32_t pool, DeviceFigures* figures) noexcept {
  if (g.ring == nullptr || pool >= kMaxDevices) return false;
  if (__atomic_load_n(&g.ring->header()->devices[pool].used, __ATOMIC_ACQUIRE) == 0) return false;
  const LedgerShard& shard = g.pools[1 + pool];
  figures->allocated = Load(shard.reported_allocated);
  figures->reserved = Load(shard.reported_reserved);
  figures->blocks = Load(shard.blocks);
  figures->peak = figures->allocated;
  if (__atomic_load_n(&shard.peak_step, __ATOMIC_RELAXED) == clock_.step && Load(shard.peak) > figures->peak) {
    figures->peak = Load(shard.peak);
  }
  figures->ooms = static_cast<uint32_t>(shard.ooms);
  return true;
}

void NoteDevice(int type, int index, const DeviceFigures& figures) noexcept {
  if (g.ring == nullptr || g.pools == nullptr) return;
  const uint32_t pool = DevicePool(static_cast<int8_t>(type), static_cast<int8_t>(index));
  if (pool == kMaxDevices) return Lost(g.counters->lost_devices);
  LedgerShard& shard = g.pools[1 + pool];
  SpinLock hold(shard.lock);
  __atomic_store_n(&shard.reported_allocated, figures.allocated, __ATOMIC_RELAXED);
  __atomic_store_n(&shard.reported_reserved, figures.reserved, __ATOMIC_RELAXED);
  __atomic_store_n(&shard.blocks, figures.blocks, __ATOMIC_RELAXED);
  NotePeak(shard, __atomic_load_n(&clock_.step, __ATOMIC_RELAXED), figures.peak);
}

void RestartTrackerInChild(RingWriter* ring) noexcept {
  ++clock_.generation;
  clock_.step = 0, clock_.shift = 0, clock_.phase = 0;
  running_total = 0;
  table.Reset();
  view = 0;
  if (ring != nullptr && ring->open()) {
    if (g.shards != nullptr) PointAt(ring);
  } else {
    g.mode = State::kOff;
    g.report_off = true;
  }
}

void SetOomCallback(OomCallback callback) noexcept { g.on_oom = callback; }

namespace testing {
void* HookedAlloc(size_t bytes) { return HookAlloc(bytes); }
void HookedFree(void* block) { HookFree(block); }
void UseAllocator(RingWriter* ring, void* (*alloc)(size_t), void (*release)(void*), bool in_table) noexcept {
  if (g.ring == nullptr) ::pthread_key_create(&g.thread_end, &ReleaseShard);
  PointAt(ring);
  g.alloc = alloc, g.release = release, g.mode = in_table ? State::kTable : State::kMark;
}
void HookedReport(void* block, int64_t size, size_t allocated, size_t reserved, int type, int index) {
  TakeReport(block, size, allocated, reserved, static_cast<uint16_t>((type & 0xff) | index << 8));
}
}  // namespace testing

}  // namespace lowtide::record
