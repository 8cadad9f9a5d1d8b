#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/checkpoint/format.h"

namespace lowtide::checkpoint {

// One checkpoint of a folder: a file, or a folder of files with a manifest (one per rank, or of torch.distributed).
struct Stored {
  std::string path;
  uint64_t step = 0;
  uint64_t bytes = 0;      // all files
  int64_t written = 0;     // seconds since 1970
  int ranks = 1;
  bool committed = true;   // false: a temporary file that an interrupted save left
};

// What verification found: `problem` is empty when all is whole.
struct Verdict {
  Stored stored;
  std::string problem;
};

// Checkpoints at `path`: the file itself, or all of a folder, oldest first, what was left over last. Throws Error when
// there is no such path.
std::vector<Stored> List(const std::string& path);

// Reads everything. Never throws for damage: that is what it reports.
Verdict Verify(const Stored& stored);

// The headers of its files in order (one without a manifest). Throws Error.
std::vector<Header> Headers(const Stored& stored);

}  // namespace lowtide::checkpoint
