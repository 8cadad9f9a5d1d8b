// The reader of memory snapshots and everything that is made of what it read. Only lowtide::Error may come
// out.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "snapshot/explain.h"
#include "snapshot/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    lowtide::snapshot::ExplainOptions options;
    options.capacity = uint64_t{24} << 30;
    if (size % 4 == 0) options.replay = "expandable_segments:True";
    lowtide::snapshot::Explain(lowtide::snapshot::ReadSnapshotBytes({data, size}, "fuzz", {1}), options);
  } catch (const lowtide::Error&) {
  }
  return 0;
}
