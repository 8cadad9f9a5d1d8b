// Looks at the ledger: copies that the process takes now and then as it goes. A leak is births that never die, and the
// end of the process is no time to ask: by then the interpreter has freed even what leaked.
#pragma once

#include <cstdint>
#include <vector>

#include "record/ring_reader.h"
#include "lowtide/record/ring_writer.h"

namespace lowtide::record {

// In the process, on the training thread: tens of microseconds, nothing allocated. Left out when another thread is
// just regrouping its cells.
void WriteLook(RingWriter& ring, uint64_t step) noexcept;

// Outside: the whole looks among `records`, oldest first.
std::vector<LedgerLook> GroupLooks(const FileHeader& header, const std::vector<LookRecord>& records);

}  // namespace lowtide::record
