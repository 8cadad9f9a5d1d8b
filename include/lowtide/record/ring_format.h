// The ring file: what one process of a training run leaves about itself. This header is the on-disk format
// (docs/file-format.md explains it in words). Little-endian, natural alignment, fixed size from creation on.
//
//   FileHeader       one, 8192 bytes: who writes, what was hooked, control words, counters of what was lost
//   Section[...]     their places are in FileHeader::sections, so that readers skip what they do not know
//     kSteps         ring of Slot<StepRecord>,     one per step: the last `count` steps
//     kDevices       ring of Slot<DeviceRecord>,   one per step and device
//     kWorkers       ring of Slot<WorkerRecord>,   DataLoader workers, looked at from the trainer's side
//     kMarks         ring of Slot<MarkRecord>      epoch, validation, checkpoint: begin and end
//     kEvents        ring of Slot<EventRecord>     out of memory, exception, exit, lost
//     kSeries        array of Slot<SeriesRecord>,  the whole run, pairs merged as it grows
//     kDeviceSeries  the same per device: kMaxDevices arrays, one after the other
//     kShards        LedgerShard per thread        cpu tensor bytes by step of birth
//     kPools         LedgerShard: shm, then one per device
//     kWorkerTable   WorkerEntry: DataLoader workers that the trainer knows
//     kLooks         ring of Slot<LookRecord>      the ledger as it stood at some steps: at the end all is freed
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lowtide::record {

inline constexpr char kMagic[8] = {'L', 'O', 'W', 'T', 'I', 'D', 'E', '\n'};
inline constexpr uint32_t kFormatVersion = 1;
inline constexpr int64_t kAbsent = INT64_MIN;  // a figure that was not taken

inline constexpr uint32_t kMaxDevices = 16;
inline constexpr uint32_t kLedgerBuckets = 256;  // ranges of birth steps; their width doubles when they run out
inline constexpr uint32_t kLedgerPhases = 4;     // step, validation, checkpoint, other (Phase values)
inline constexpr uint32_t kSizeClasses = 160;    // four per power of two
inline constexpr uint32_t kShardCount = 24;      // the last one is shared by all further threads
inline constexpr uint32_t kPoolCount = 1 + kMaxDevices;

enum SectionId : uint32_t {
  kSteps, kDevices, kWorkers, kMarks, kEvents, kSeries, kDeviceSeries, kShards, kPools, kWorkerTable, kLooks, kSectionCount
};

enum class Phase : uint8_t { kStep = 0, kValidation = 1, kCheckpoint = 2, kOther = 3, kEpoch = 4 };
enum class MarkKind : uint16_t { kEpoch = 1, kValidation, kCheckpoint, kUser, kEval, kNoGrad, kData };
enum class MarkEdge : uint16_t { kPoint = 0, kBegin = 1, kEnd = 2 };
enum class EventKind : uint16_t { kOom = 1, kException, kExit, kLost, kCensus, kStop, kFork, kNote };
enum class Role : uint32_t { kUnknown = 0, kTrainer = 1, kLauncher = 2, kWorker = 3, kObserver = 4 };
// kSignal: exit_code is the signal's number, negated.
enum class ExitState : uint32_t { kRunning = 0, kClean = 1, kException = 2, kStopped = 3, kSignal = 4 };
// Why the outside asks for the script's end.
enum class StopReason : uint64_t { kAsked = 0, kMemory = 1, kLeak = 2 };
// What ended a step: in order of authority, the highest one seen so far wins.
enum class StepSource : uint8_t { kNone = 0, kModule = 1, kBackward = 2, kLoader = 3, kOptimizer = 4, kUser = 5 };

// FileHeader::capabilities: what this process can be watched for.
enum Capability : uint64_t {
  kCapAllocCpu = 1u << 0,        // a slot of c10::alloc_cpu was patched
  kCapFreeCpu = 1u << 1,         // a slot of c10::free_cpu was patched
  kCapTrailer = 1u << 2,         // sizes and birth steps live behind each block; without it, in a table
  kCapReport = 1u << 3,          // c10::reportMemoryUsageToProfiler outside libc10: devices and shared memory
  kCapReportOom = 1u << 4,       // c10::reportOutOfMemoryToProfiler
  kCapMallinfo = 1u << 5,        // mallinfo2 exists and speaks of the allocator in use
  kCapPythonBlocks = 1u << 6,    // the interpreter counts its blocks
  kCapProc = 1u << 7,            // /proc/self is readable
  kCapDeviceReport = 1u << 8,    // a library with a device's caching allocator has the slot
  kCapDeviceStats = 1u << 9,     // device figures come from PyTorch's statistics (fallback)
  kCapRingInShm = 1u << 10,      // the file lies in /dev/shm, else on the run folder's disk
  kCapForeignAllocator = 1u << 11,  // malloc is not the C library's (jemalloc, tcmalloc, mimalloc)
};

struct Section {
  uint64_t offset, bytes;      // from the file's start; whole section
  uint32_t entry_bytes, count; // one entry; entries
  uint64_t head;               // rings: records begun so far (record r lies in slot r % count). Series: entries.
};

struct DeviceEntry {
  int8_t type;                 // c10::DeviceType: 1 is cuda
  int8_t index;
  uint16_t used;               // 0: this entry is empty
  uint32_t reserved;
  int64_t capacity_bytes;      // kAbsent when not known
  char name[48];
};

// Words by which the outside asks and the process answers. A request is a number that grows by one.
struct Control {
  uint64_t census_request;     // outside writes
  uint64_t census_done;        // the process writes: the last request answered
  uint64_t census_step;        // at the end of this step
  uint64_t census_pause_ns;    // the pause that it took
  int64_t census_status;       // 0 done, else -1 no one answers censuses, -2 it failed
  uint64_t stop_at_step;       // outside writes: end the script at this step's boundary; 0 is never
  // What the training thread waits for of other ranks, written by the process.
  int64_t wait_since_ns;       // CLOCK_MONOTONIC; 0: it does not wait
  uint64_t waits;              // begun so far
  char wait_name[32];          // of the newest: "allreduce", "gradients" (a wrapped model's, in backward)
  uint64_t stop_reason;        // outside writes, before stop_at_step: a StopReason
  uint64_t reserved[3];
};

struct Counters {              // what was lost, and what was seen
  uint64_t foreign_frees;      // blocks freed that carried no mark: born before the hook, or by other means
  uint64_t untracked_allocs;   // blocks that could not be marked
  uint64_t lost_blocks;        // device blocks that did not fit the table
  uint64_t lost_devices;       // reports of devices beyond kMaxDevices
  uint64_t lost_marks;         // hooks that failed inside lowtide
  uint64_t lost_workers;       // DataLoader workers beyond the table
  uint64_t ooms;
  uint64_t own_ns;             // time that sampling took in the training thread, all in all
  uint64_t samples_heap, samples_host, samples_python;
  uint64_t reserved[5];
};

// How often the loop around the optimizer's step goes round, looked at in some windows of steps.
struct LoopFigures {
  uint64_t steps, iterations;  // in those windows, all in all; 0: not known
  char place[64];              // "train.py:29", its first line
};

struct FileHeader {
  char magic[8];
  uint32_t version, header_bytes;
  uint64_t file_bytes;
  uint32_t ready;              // 1 once every field below is written
  uint32_t section_count;
  Section sections[16];

  int32_t pid, parent_pid;
  int32_t rank, local_rank, world_size;  // -1 when not known
  Role role;
  int64_t start_wall_ns, start_mono_ns;  // the same moment on both clocks
  uint64_t capabilities;                 // Capability bits
  int64_t host_total_bytes;              // MemTotal
  int64_t cgroup_limit_bytes;            // the tightest limit above the process; kAbsent without one
  int64_t shm_total_bytes;               // size of /dev/shm
  int64_t fd_limit;                      // RLIMIT_NOFILE
  ExitState exit_state;
  int32_t exit_code;
  int64_t exit_mono_ns;
  uint64_t last_step;                    // steps ended so far
  uint32_t series_stride;                // steps per series entry
  StepSource step_source;
  uint8_t phase;
  uint16_t padding;
  DeviceEntry devices[kMaxDevices];
  char python_version[32], torch_version[48], hostname[64];
  char script[512];                      // sys.argv[0] or "-m module", cut
  char hooks[1024];                      // "libtorch_cpu.so:alloc_cpu free_cpu; ..." what was patched where
  Control control;
  Counters counters;
  LoopFigures loop;                      // zeros in files that were written before it was
};
inline constexpr uint32_t kHeaderBytes = 8192;
static_assert(sizeof(FileHeader) <= kHeaderBytes && std::is_trivially_copyable_v<FileHeader>);

// A slot: seqlock and checksum. `sequence` is 2 r + 1 while record r is written, 2 r + 2 once it is whole.
// `checksum` covers sequence, kind and payload.
struct SlotHeader {
  uint64_t sequence;
  uint32_t checksum;
  uint16_t kind;               // SectionId
  uint16_t payload_bytes;
};

struct StepRecord {
  uint64_t step;               // 1 for the first
  int64_t mono_ns;             // CLOCK_MONOTONIC
  int64_t cpu_bytes;           // tensor storages alive
  int64_t cpu_peak_bytes;      // highest since the step before
  int64_t heap_bytes;          // mallinfo2: uordblks + hblkhd
  int64_t python_blocks;
  int64_t rss_bytes, shared_bytes;  // statm; RssAnon is about rss - shared
  int64_t shm_used_bytes;      // /dev/shm, all processes
  int64_t shm_tensor_bytes;    // this process's shared-memory and mapped tensors, whole pages
  int64_t cpu_blocks;          // tensor storages alive
  int32_t fds;                 // -1: not taken
  Phase phase;
  StepSource source;
  uint16_t epoch;              // epochs ended, saturating
  uint32_t data_wait_us;       // time spent waiting for the DataLoader since the step before
  uint32_t own_us;             // time spent by lowtide's own samplers in this step
  uint32_t collective_wait_us; // time spent waiting for other ranks since the step before
  uint32_t reserved;
};

struct DeviceRecord {
  uint64_t step;
  int64_t mono_ns;
  int8_t type, index;
  Phase phase;
  uint8_t pool;                // entry of FileHeader::devices
  uint32_t ooms;
  int64_t allocated_bytes, reserved_bytes, peak_bytes, blocks;
  int64_t used_bytes, total_bytes;  // the driver's own figures (NVML), where an observer writes
  int64_t padding[5];
};

struct WorkerRecord {
  uint64_t step;               // of the trainer, when sampled
  int64_t mono_ns;
  int32_t pid, parent_pid;
  int64_t rss_bytes, rss_anon_bytes, rss_file_bytes, rss_shmem_bytes;
  uint64_t minor_faults;
  int32_t fds;
  uint32_t loader, worker;     // as in WorkerEntry
  uint32_t alive;
  int64_t padding[4];
};

struct MarkRecord {
  uint64_t step;               // steps ended before the mark
  int64_t mono_ns;
  MarkKind kind;
  MarkEdge edge;
  uint32_t epoch;
  int64_t value;               // kEpoch: what set_epoch was given; kCheckpoint: bytes written, when known
  char text[80];
};

struct EventRecord {
  uint64_t step;
  int64_t mono_ns;
  EventKind kind;
  uint16_t pool;
  int32_t code;
  int64_t value, value2, value3;  // kOom: bytes asked, allocated, reserved. kCensus: pause in ns, bytes that the census
                                  // itself took in the C heap, and in resident memory
  char text[64];
};

// A piece of a look at the ledger: six cells of one pool and phase. A look is whole when its first and its last record
// are there; one that was half given up by the ring is passed over.
struct LookCell {
  uint32_t bucket, blocks;     // as LedgerShard::cells
  int64_t bytes;
};
inline constexpr uint32_t kLookCells = 6;
struct LookRecord {
  uint64_t step;               // of the look: steps ended
  uint8_t pool;                // 0 cpu, 1 shm, 2 + i device i
  uint8_t phase;               // of birth
  uint8_t count;               // cells used
  uint8_t edge;                // 1 the look's first record, 2 its last, 3 both
  uint32_t shift;              // buckets are 2^shift steps wide
  LookCell cells[kLookCells];
};

struct MinMax {
  int64_t min, max;            // both kAbsent when no sample was taken
};

struct SeriesRecord {          // several steps in a row
  uint64_t first_step, last_step;
  int64_t mono_ns;             // at last_step
  int64_t cpu_last, cpu_peak;
  MinMax cpu, heap, python_blocks, rss, shared, shm_used, shm_tensor, fds, blocks;
  uint32_t phases;             // bit per Phase seen
  uint32_t data_wait_us;
  uint64_t epoch;
  int64_t reserved[5];
};

struct DeviceSeriesRecord {
  uint64_t first_step, last_step;
  int64_t mono_ns;
  int8_t type, index;
  uint8_t pool;
  uint8_t padding;
  uint32_t phases;
  MinMax allocated, reserved;
  int64_t peak_bytes;
  int64_t allocated_last;
  int64_t padding2[4];
};

template <typename Record>
struct Slot {
  SlotHeader header;
  Record record;
};
static_assert(sizeof(StepRecord) == 112 && sizeof(DeviceRecord) == 112 && sizeof(WorkerRecord) == 112);
static_assert(sizeof(MarkRecord) == 112 && sizeof(EventRecord) == 112 && sizeof(LookRecord) == 112 && sizeof(DeviceSeriesRecord) == 112);
static_assert(sizeof(Slot<SeriesRecord>) == 256);

struct LedgerCell {
  int64_t bytes, blocks;       // alive
};

// One writer each (but the last shard and the pools, which a lock guards). `cells[p][b]` counts what was born in
// phase p in steps [b << shift, (b + 1) << shift), where a birth's step is the number of steps ended before it.
// A thread that frees another's block counts it in its own shard: single cells may be negative, sums are exact.
struct LedgerShard {
  uint32_t owner;              // thread id; 0 is free
  uint32_t version;            // odd while the cells are being regrouped
  uint32_t shift;
  uint32_t lock;
  int64_t bytes, blocks;       // alive
  int64_t pending;             // not yet in the process's running total
  int64_t peak;                // highest running total in `peak_step`
  uint64_t peak_step;
  uint64_t births, unused;     // blocks ever born here
  int64_t reported_allocated, reported_reserved;  // devices: the allocator's own figures
  uint64_t ooms;
  int64_t padding[4];
  LedgerCell cells[kLedgerPhases][kLedgerBuckets];
  LedgerCell sizes[kSizeClasses];
};
static_assert(sizeof(LedgerShard) % 64 == 0);

struct WorkerEntry {
  int32_t pid;                 // 0: empty
  uint32_t loader, worker;     // running number of the loader's iterator; worker's number in it
  uint32_t ended;
  int64_t start_mono_ns;
  int32_t parent_pid, reserved;
};

// The class of a size: exact powers of two and three steps between; SizeClassFloor is the smallest size in it.
constexpr uint32_t SizeClassOf(uint64_t bytes) {
  if (bytes < 4) return static_cast<uint32_t>(bytes);
  const int top = 63 - __builtin_clzll(bytes);
  const uint32_t index = static_cast<uint32_t>(top - 1) * 4 + static_cast<uint32_t>((bytes >> (top - 2)) & 3);
  return index < kSizeClasses ? index : kSizeClasses - 1;
}
constexpr uint64_t SizeClassFloor(uint32_t index) {
  if (index < 4) return index;
  return (4ull + index % 4) << (index / 4 - 1);
}

// 32 bits over the words of a slot but its checksum. Words are mixed by multiplication: a few nanoseconds.
constexpr uint32_t SlotChecksum(uint64_t sequence, uint64_t kind, const uint64_t* words, size_t count) {
  uint64_t a = sequence * 0x9E3779B97F4A7C15ull + kind, b = 0x2545F4914F6CDD1Dull;
  for (size_t i = 0; i + 1 < count; i += 2) {
    a = (a ^ words[i]) * 0xD6E8FEB86659FD93ull;
    b = (b ^ words[i + 1]) * 0xCA5A826395121157ull;
  }
  if (count % 2) a = (a ^ words[count - 1]) * 0xD6E8FEB86659FD93ull;
  a ^= (b >> 31) ^ (b << 33);
  a *= 0x9E3779B97F4A7C15ull;
  return static_cast<uint32_t>(a >> 32);
}

}  // namespace lowtide::record
