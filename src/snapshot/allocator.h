#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "snapshot/model.h"

namespace lowtide::snapshot {

// The settings of PyTorch's CUDA caching allocator (c10/cuda/CUDAAllocatorConfig.h), and the room it has.
struct AllocatorConfig {
  static constexpr uint64_t kUnlimited = ~uint64_t{0};

  uint64_t max_split_size = kUnlimited;  // bytes
  uint64_t max_non_split_rounding = 20 << 20;
  uint64_t large_segment_size = 20 << 20;
  double garbage_collection_threshold = 0;
  bool expandable_segments = false;
  std::array<uint64_t, 16> roundup_power2_divisions{};  // by floor(log2(MiB)), 1 MiB to 32 GiB and more
  uint64_t padding = 0;            // added to each request before rounding; torch_npu: 32
  uint64_t capacity = kUnlimited;  // bytes that the allocator may reserve in all
  uint64_t limit = kUnlimited;     // set_per_process_memory_fraction, in bytes

  // As recorded; where the file does not say, as its events tell.
  static AllocatorConfig Recorded(const Snapshot& snapshot, int device);
  // Applies "max_split_size_mb:512,expandable_segments:True" as PYTORCH_CUDA_ALLOC_CONF has it, and
  // "capacity:40GiB". Throws Error naming the key that is not known or the value that is not allowed.
  void Apply(std::string_view conf);
  std::string Text() const;  // as PYTORCH_CUDA_ALLOC_CONF; "defaults" when all are
};

// c10's rules, with addresses made up unless they are given: rounding, pools, best fit, split, coalesce,
// retry ladder.
class Allocator {
 public:
  static constexpr uint64_t kMinBlock = 512, kSmallSize = 1 << 20, kSmallSegment = 2 << 20,
                            kMinLargeAlloc = 10 << 20, kRoundLarge = 2 << 20;
  using BlockId = uint32_t;
  static constexpr BlockId kNone = 0xffffffff;

  struct Block {
    uint64_t address = 0, size = 0;
    BlockId prev = kNone, next = kNone;
    uint32_t segment = 0;
    bool allocated = false;
    bool mapped = true;
    uint64_t freed_at = 0;  // in pool look-ups, for the garbage collector's age
  };
  struct Segment {
    uint64_t address = 0, size = 0;  // of an expandable one: mapped bytes
    uint32_t pool = 0;
    int64_t stream = 0;
    bool small = false, expandable = false, dead = false;
    BlockId first = kNone;
  };
  struct Stats {
    uint64_t reserved = 0, allocated = 0, peak_reserved = 0, peak_allocated = 0;
    uint64_t segments = 0, peak_segments = 0, driver_allocs = 0, driver_frees = 0, retries = 0;
  };

  explicit Allocator(const AllocatorConfig& config) : config_(config) {}

  uint64_t Round(uint64_t size) const;
  uint64_t SegmentSize(uint64_t rounded) const;  // what the driver is asked for

  // The block that would serve the request, or kNone: rule "best fit" of the private pool `pool` (0:
  // default).
  BlockId FindFree(uint64_t rounded, int64_t stream, uint32_t pool) const;
  // Takes the front of a free block; the tail is split off when the rules say so.
  BlockId Allocate(BlockId block, uint64_t rounded);
  void Free(BlockId block);
  // The whole of malloc, driver and retry ladder included; kNone: out of memory.
  BlockId Malloc(uint64_t size, int64_t stream, uint32_t pool);
  // empty_cache: gives back every free segment, and the free pages of expandable ones.
  void ReleaseCached();

  // A segment as the driver gave it: one free block. `address` 0 makes one up.
  uint32_t AddSegment(uint64_t address, uint64_t size, int64_t stream, uint32_t pool, bool small,
                      bool expandable = false);
  void RemoveSegment(uint32_t segment);  // all of it must be free
  // Grows or makes an expandable range by mapped pages that were recorded.
  void MapRange(uint64_t address, uint64_t size, int64_t stream, uint32_t pool, bool small);
  void UnmapRange(uint64_t address, uint64_t size);

  // The live or free block that holds `address`, or kNone.
  BlockId BlockAt(uint64_t address) const;
  // Makes [address, address + size) one allocated block, out of the free block that holds it; kNone if there
  // is none.
  BlockId Carve(uint64_t address, uint64_t size);
  std::optional<uint32_t> SegmentAt(uint64_t address) const;

  const Block& block(BlockId id) const { return blocks_[id]; }
  const std::vector<Segment>& segments() const { return segments_; }
  const Stats& stats() const { return stats_; }
  const AllocatorConfig& config() const { return config_; }
  static bool IsSmall(uint64_t rounded) { return rounded <= kSmallSize; }

 private:
  struct FreeKey {
    int64_t stream;
    uint64_t size, address;
    BlockId block;
    bool operator<(const FreeKey& other) const {
      return std::tie(stream, size, address, block) <
             std::tie(other.stream, other.size, other.address, other.block);
    }
  };
  using FreeSet = std::set<FreeKey>;

  FreeSet& Pool(const Segment& segment) { return FreeOf(segment.pool, segment.small); }
  FreeSet& FreeOf(uint32_t pool, bool small);
  const FreeSet* FindPool(uint32_t pool, bool small) const;
  BlockId NewBlock();
  void Drop(BlockId block);
  void InsertFree(BlockId block);
  void EraseFree(BlockId block);
  bool Mergeable(BlockId a, BlockId b) const;
  BlockId MergeInto(BlockId left, BlockId right);
  BlockId Coalesce(BlockId block);
  BlockId SplitAt(BlockId block, uint64_t size);
  bool ShouldSplit(const Block& block, uint64_t rounded, const Segment& segment) const;
  BlockId FromDriver(uint64_t rounded, int64_t stream, uint32_t pool);
  BlockId Expand(uint64_t rounded, int64_t stream, uint32_t pool);
  bool Fits(uint64_t bytes) const;
  uint64_t Page(bool small) const { return small ? kSmallSegment : config_.large_segment_size; }
  void CollectGarbage(uint64_t needed);
  bool ReleaseOversize(uint64_t rounded, int64_t stream, uint32_t pool);
  void UnmapFree(uint32_t segment);
  uint64_t Unmap(BlockId block, uint64_t begin, uint64_t end);
  void Reserve(uint64_t bytes);
  void Unreserve(uint64_t bytes) { stats_.reserved -= bytes; }

  AllocatorConfig config_;
  std::vector<Block> blocks_;
  std::vector<BlockId> unused_;
  std::vector<Segment> segments_;
  std::vector<FreeSet> pools_;  // 2 * pool + small
  std::map<uint64_t, uint32_t> segment_at_;
  uint64_t next_address_ = uint64_t{1} << 50;
  uint64_t lookups_ = 0;
  // Steps of walks along blocks. Real traces need few; a hostile one must not cost its square.
  mutable uint64_t walk_left_ = uint64_t{200} << 20;
  Stats stats_;
};

}  // namespace lowtide::snapshot
