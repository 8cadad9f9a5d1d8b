#include "record/looks.h"

#include <algorithm>
#include <cstring>

namespace lowtide::record {
namespace {

using Cells = LedgerCell[kLedgerPhases][kLedgerBuckets];

bool EverUsed(const LedgerShard& shard) noexcept { return shard.births != 0 || shard.blocks != 0; }

// Cells of several shards in one grouping, the coarsest of them. False when one is being regrouped.
bool Sum(const LedgerShard* shards, uint32_t count, Cells& sum, uint32_t& shift) noexcept {
  shift = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (__atomic_load_n(&shards[i].version, __ATOMIC_ACQUIRE) % 2) return false;
    if (EverUsed(shards[i])) shift = std::max(shift, std::min<uint32_t>(shards[i].shift, 31));
  }
  std::memset(sum, 0, sizeof(sum));
  for (uint32_t i = 0; i < count; ++i) {
    const LedgerShard& shard = shards[i];
    if (!EverUsed(shard)) continue;
    const uint32_t version = __atomic_load_n(&shard.version, __ATOMIC_ACQUIRE);
    const uint32_t finer = shift - std::min(shard.shift, shift);
    for (uint32_t phase = 0; phase < kLedgerPhases; ++phase) {
      for (uint32_t b = 0; b < kLedgerBuckets; ++b) {
        sum[phase][b >> finer].bytes += __atomic_load_n(&shard.cells[phase][b].bytes, __ATOMIC_RELAXED);
        sum[phase][b >> finer].blocks += __atomic_load_n(&shard.cells[phase][b].blocks, __ATOMIC_RELAXED);
      }
    }
    if (__atomic_load_n(&shard.version, __ATOMIC_ACQUIRE) != version) return false;
  }
  return true;
}

// Collects cells into records; the last record is held back until the look's end is known.
class Pen {
 public:
  Pen(RingWriter& ring, uint64_t step) noexcept : ring_(ring) {
    next_.step = step;
    next_.edge = 1;
  }
  void Add(uint8_t pool, uint8_t phase, uint32_t shift, uint32_t bucket, const LedgerCell& cell) noexcept {
    const bool other = next_.count > 0 && (next_.pool != pool || next_.phase != phase);
    if (other || next_.count == kLookCells) Flush();
    next_.pool = pool;
    next_.phase = phase;
    next_.shift = shift;
    next_.cells[next_.count++] = {bucket, static_cast<uint32_t>(std::clamp<int64_t>(cell.blocks, 0, UINT32_MAX)), cell.bytes};
  }
  void End() noexcept {
    next_.edge |= 2;
    Flush();
  }

 private:
  void Flush() noexcept {
    ring_.Write(next_);
    const uint64_t step = next_.step;
    next_ = {};
    next_.step = step;
  }
  RingWriter& ring_;
  LookRecord next_{};
};

void AddPool(Pen& pen, uint8_t pool, const Cells& cells, uint32_t shift) noexcept {
  for (uint32_t phase = 0; phase < kLedgerPhases; ++phase) {
    for (uint32_t b = 0; b < kLedgerBuckets; ++b) {
      if (cells[phase][b].bytes > 0) pen.Add(pool, static_cast<uint8_t>(phase), shift, b, cells[phase][b]);
    }
  }
}

}  // namespace

void WriteLook(RingWriter& ring, uint64_t step) noexcept {
  if (!ring.open()) return;
  Cells cells;
  uint32_t shift = 0;
  if (!Sum(ring.shards(), kShardCount, cells, shift)) return;
  Pen pen(ring, step);
  AddPool(pen, 0, cells, shift);
  for (uint32_t i = 0; i < kPoolCount; ++i) {
    const LedgerShard& shard = ring.pools()[i];
    if (EverUsed(shard) && Sum(&shard, 1, cells, shift)) AddPool(pen, static_cast<uint8_t>(i + 1), cells, shift);
  }
  pen.End();
}

}  // namespace lowtide::record
