#include "record/ledger_reader.h"

#include <algorithm>

namespace lowtide::record {
namespace {

constexpr int kTries = 16;

// One shard while its thread counts on: taken again when its cells were being regrouped meanwhile.
bool ReadShard(const RingFile& file, const Section& section, uint32_t index, LedgerShard& shard) {
  const uint64_t at = section.offset + index * sizeof(LedgerShard);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    uint32_t after = 0;
    if (file.Read(at, &shard, sizeof(shard)) != sizeof(shard)) return false;
    file.Read(at + offsetof(LedgerShard, version), &after, sizeof(after));
    if (shard.version % 2 == 0 && after == shard.version) break;
  }
  shard.shift = std::min<uint32_t>(shard.shift, 63);
  return true;
}

bool Used(const LedgerShard& shard) { return shard.births != 0 || shard.blocks != 0 || shard.bytes != 0; }

}  // namespace

LedgerReader::LedgerReader(const RingFile& file) {
  const FileHeader& header = file.header();
  LedgerShard shard;
  Pool cpu{"cpu", {}, false};
  for (uint32_t i = 0; i < header.sections[kShards].count; ++i) {
    if (ReadShard(file, header.sections[kShards], i, shard) && Used(shard)) cpu.shards.push_back(shard);
  }
  pools_.push_back(std::move(cpu));
  for (uint32_t i = 0; i < std::min(header.sections[kPools].count, kPoolCount); ++i) {
    if (!ReadShard(file, header.sections[kPools], i, shard) || !Used(shard)) continue;
    const bool device = i > 0;
    const DeviceEntry entry = device ? header.devices[i - 1] : DeviceEntry{};
    pools_.push_back({device ? DeviceName(entry.type, entry.index) : "shm", {shard}, device});
  }
}

std::vector<LedgerRow> LedgerReader::Rows() const {
  std::vector<LedgerRow> rows;
  for (const Pool& pool : pools_) {
    uint32_t shift = 0;
    for (const LedgerShard& shard : pool.shards) shift = std::max(shift, shard.shift);
    for (uint32_t phase = 0; phase < kLedgerPhases; ++phase) {
      std::vector<LedgerCell> cells(kLedgerBuckets);
      for (const LedgerShard& shard : pool.shards) {
        for (uint32_t b = 0; b < kLedgerBuckets; ++b) {
          LedgerCell& cell = cells[b >> (shift - shard.shift)];
          cell.bytes += shard.cells[phase][b].bytes;
          cell.blocks += shard.cells[phase][b].blocks;
        }
      }
      for (uint64_t b = 0; b < kLedgerBuckets; ++b) {
        if (cells[b].bytes == 0 && cells[b].blocks == 0) continue;
        rows.push_back({pool.name, static_cast<Phase>(phase), b << shift, ((b + 1) << shift) - 1, cells[b].bytes,
                        cells[b].blocks});
      }
    }
  }
  return rows;
}

std::vector<SizeRow> LedgerReader::Sizes() const {
  std::vector<SizeRow> rows;
  for (const Pool& pool : pools_) {
    for (uint32_t c = 0; c < kSizeClasses; ++c) {
      SizeRow row{pool.name, SizeClassFloor(c), 0, 0};
      for (const LedgerShard& shard : pool.shards) {
        row.bytes += shard.sizes[c].bytes;
        row.blocks += shard.sizes[c].blocks;
      }
      if (row.bytes != 0 || row.blocks != 0) rows.push_back(row);
    }
  }
  return rows;
}

std::vector<PoolTotals> LedgerReader::Totals() const {
  std::vector<PoolTotals> out;
  for (const Pool& pool : pools_) {
    PoolTotals total;
    total.pool = pool.name;
    for (const LedgerShard& shard : pool.shards) {
      total.bytes += shard.bytes;
      total.blocks += shard.blocks;
      total.births += shard.births;
      if (pool.device) total.reserved_bytes = shard.reported_reserved;
    }
    total.deaths = total.births - static_cast<uint64_t>(total.blocks);
    out.push_back(total);
  }
  return out;
}

}  // namespace lowtide::record
