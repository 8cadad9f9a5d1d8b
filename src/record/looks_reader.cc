// The reading half of looks.cc, apart from it: the extension in the user's process has no use for it.
#include <algorithm>

#include "record/looks.h"

namespace lowtide::record {
namespace {

std::string NameOf(const FileHeader& header, uint8_t pool) {
  if (pool < 2) return pool == 0 ? "cpu" : "shm";
  const DeviceEntry& device = header.devices[std::min<uint32_t>(pool - 2u, kMaxDevices - 1)];
  return DeviceName(device.type, device.index);
}

}  // namespace

std::vector<LedgerLook> GroupLooks(const FileHeader& header, const std::vector<LookRecord>& records) {
  std::vector<LedgerLook> looks;
  LedgerLook look;
  bool whole = false;
  for (const LookRecord& record : records) {
    if (record.edge & 1) {
      look = {record.step, {}};
      whole = true;
    }
    whole = whole && record.step == look.step && record.count <= kLookCells && record.shift < 32 && record.phase < kLedgerPhases;
    if (!whole) continue;
    for (uint32_t i = 0; i < record.count; ++i) {
      const LookCell& cell = record.cells[i];
      const uint64_t first = static_cast<uint64_t>(cell.bucket) << record.shift;
      look.rows.push_back({NameOf(header, record.pool), static_cast<Phase>(record.phase), first,
                           first + (uint64_t{1} << record.shift) - 1, cell.bytes, cell.blocks});
    }
    if (record.edge & 2) looks.push_back(std::move(look)), whole = false;
  }
  return looks;
}

}  // namespace lowtide::record
