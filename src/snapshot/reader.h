#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "snapshot/model.h"

namespace lowtide::snapshot {

struct ReadOptions {
  unsigned threads = 0;  // 0: two where the machine has them
};

// Reads a memory snapshot: a pickle (protocols 2 to 5), the same inside gzip, zip or the HTML page that
// torch.cuda._memory_viz writes, or JSON. Only data is read: nothing in the file can run. Throws Error naming
// the file, the offset and what to do; memory stays below four times the (unpacked) file.
Snapshot ReadSnapshot(const std::string& path, const ReadOptions& options = {});

// The same from memory; `name` is for messages.
Snapshot ReadSnapshotBytes(std::span<const uint8_t> bytes, const std::string& name,
                           const ReadOptions& options = {});

}  // namespace lowtide::snapshot
