#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "snapshot/interner.h"
#include "snapshot/pod_vector.h"

namespace lowtide::snapshot {

// A CUDA memory snapshot as torch.cuda.memory._dump_snapshot writes it (torch/csrc/cuda/memory_snapshot.cpp),
// all families in one shape. Sizes are bytes, times microseconds since the epoch. Strings, frames and stacks
// are interned: an id stands for equal contents. Stack 0 is "no stack".

using StringId = uint32_t;
using StackId = uint32_t;

enum class Action : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kSnapshot,
  kOom,
  kUserDefined,
  kAnnotate,
  kWorkspaceSnapshot,
  kUnknown,
};
const char* ActionName(Action action);

// What many events share: the stream and the marks put on them.
struct Context {
  int64_t stream = 0;            // the raw cudaStream_t; 0 is the default stream
  StringId compile_context = 0;  // 0: none, or "N/A"
  StringId user_metadata = 0;
  bool has_pool = false;  // torch 2.12+ writes the pool of each event
  std::pair<int64_t, int64_t> pool{0, 0};
  bool operator==(const Context&) const = default;
};

struct Event {
  uint64_t address = 0;  // of an oom event: the driver's free bytes (without kHasAddress: the file has none)
  uint64_t size = 0;  // alloc and free: requested bytes; segment_*: segment bytes; oom: the rounded request
  int64_t time_us : 52;  // 0 without kHasTime
  uint64_t action_bits : 4;
  uint64_t flags : 8;
  StackId stack = 0;
  uint32_t context = 0;  // index into Snapshot::contexts

  static constexpr uint8_t kHasTime = 1;
  static constexpr uint8_t kHasAddress = 2;
  static constexpr uint8_t kEmptyStack = 4;  // a context was recorded, but it held no frame

  Event() : time_us(0), action_bits(static_cast<uint64_t>(Action::kUnknown)), flags(0) {}
  Action action() const { return static_cast<Action>(action_bits); }
  void set_action(Action action) { action_bits = static_cast<uint64_t>(action); }
};
static_assert(sizeof(Event) == 32);

struct Block {
  enum State : uint8_t { kInactive, kAllocated, kPendingFree };
  uint64_t address = 0;
  uint64_t size = 0;       // rounded
  uint64_t requested = 0;  // of active blocks; the rounded size where the file does not say
  StackId stack = 0;
  State state = kInactive;
};

struct Segment {
  int device = 0;
  uint64_t address = 0, total_size = 0, allocated_size = 0, active_size = 0, requested_size = 0;
  int64_t stream = 0;
  std::pair<int64_t, int64_t> pool{0, 0};
  bool large = true;
  bool expandable = false;
  StackId stack = 0;
  uint32_t first_block = 0, block_count = 0;  // in Snapshot::blocks
};

struct Annotation {
  StringId name = 0;
  bool start = true;
  int device = -1;
  int64_t time_us = 0;
};

struct AllocatorSettings {
  bool present = false;
  std::string conf;
  int64_t max_split_size = -1;  // bytes; -1: unlimited
  double garbage_collection_threshold = 0;
  bool expandable_segments = false;
  std::map<uint64_t, uint64_t> roundup_power2_divisions;  // MiB -> divisions
  std::map<std::string, std::string> other;
};

// One device's recording, oldest first: events[first, first + count).
struct DeviceTrace {
  int device = 0;
  size_t first = 0, count = 0;
};

struct Snapshot {
  std::string file;
  uint64_t file_bytes = 0;           // of the pickle itself, unpacked
  std::string container;             // "pickle", "gzip", "zip", "html", "json"
  std::string family;                // "2.5-2.7", "torch_npu", ...
  std::vector<std::string> missing;  // what this family or recording does not tell, one sentence each

  Interner names;  // strings, frames, stacks
  std::vector<Context> contexts{Context{}};
  PodVector<Event> events;
  std::vector<DeviceTrace> traces, host_traces;
  std::vector<Segment> segments, host_segments;
  PodVector<Block> blocks;
  std::vector<Annotation> annotations;
  AllocatorSettings settings;
  std::unordered_map<std::string, std::string> sources;  // path -> text, when the file carries them

  std::span<const Event> EventsOf(const DeviceTrace& trace) const {
    return {events.data() + trace.first, trace.count};
  }
  std::span<const Block> BlocksOf(const Segment& segment) const {
    return {blocks.data() + segment.first_block, segment.block_count};
  }
  const Context& ContextOf(const Event& event) const { return contexts[event.context]; }
  // Devices that have segments or a non-empty trace, ascending.
  std::vector<int> Devices() const;
  const DeviceTrace* TraceOf(int device) const;
  // Distinct non-empty stacks among events, blocks and segments.
  size_t StackCount() const;
};

}  // namespace lowtide::snapshot
