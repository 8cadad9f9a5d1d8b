#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "snapshot/model.h"

namespace lowtide::snapshot {

// Private pools (CUDA graphs, MemPool) by small numbers; 0 is the default pool. An event's pool is what the
// event says (torch 2.12+), else that of the final segment that holds its address.
class PoolNumbers {
 public:
  PoolNumbers(const Snapshot& snapshot, int device) : snapshot_(snapshot) {
    for (const Segment& segment : snapshot.segments) {
      if (segment.device != device || segment.pool == std::pair<int64_t, int64_t>{0, 0}) continue;
      private_[segment.address] = {segment.address + segment.total_size, Number(segment.pool)};
    }
  }
  uint32_t Number(std::pair<int64_t, int64_t> pool) {
    if (pool == std::pair<int64_t, int64_t>{0, 0} || numbers_.size() > 4096) return 0;
    return numbers_.emplace(pool, static_cast<uint32_t>(numbers_.size() + 1)).first->second;
  }
  uint32_t Of(const Event& event) {
    const Context& context = snapshot_.ContextOf(event);
    if (context.has_pool) return Number(context.pool);
    return At(event.address);
  }
  uint32_t At(uint64_t address) const {
    if (private_.empty()) return 0;
    auto it = private_.upper_bound(address);
    if (it == private_.begin() || address >= std::prev(it)->second.first) return 0;
    return std::prev(it)->second.second;
  }
  size_t count() const { return numbers_.size() + 1; }

 private:
  const Snapshot& snapshot_;
  std::map<std::pair<int64_t, int64_t>, uint32_t> numbers_;
  std::map<uint64_t, std::pair<uint64_t, uint32_t>> private_;  // begin -> end, pool
};

}  // namespace lowtide::snapshot
