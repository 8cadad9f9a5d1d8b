#include "record/ledger.h"

namespace lowtide::record {

void Regroup(LedgerShard& shard, uint32_t shift) noexcept {
  const uint32_t by = shift - shard.shift;
  __atomic_store_n(&shard.version, shard.version + 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  for (auto& row : shard.cells) {
    for (uint32_t b = 0; b < kLedgerBuckets; ++b) {
      const LedgerCell cell = row[b];
      row[b] = {};
      LedgerCell& target = row[by < 32 ? b >> by : 0];
      target.bytes += cell.bytes;
      target.blocks += cell.blocks;
    }
  }
  shard.shift = shift;
  __atomic_thread_fence(__ATOMIC_RELEASE);
  __atomic_store_n(&shard.version, shard.version + 1, __ATOMIC_RELEASE);
}

}  // namespace lowtide::record
