// Where ring files lie: in /dev/shm while the run lives (a disk would stall the training), with links in the run's
// folder; `CollectRings` turns the links into files.
#pragma once

#include <string>
#include <vector>

#include "lowtide/record/shm_name.h"

namespace lowtide::record {

// The host in whose memory a link's target lies, when that is not this one; empty for ours.
std::string OtherHostOf(const std::string& target);

// Whether the rings in `directory` are all of other hosts that still write them: one more host of the same job may
// record there too.
bool BelongsToOtherHosts(const std::string& directory);

// Replaces every link to a ring of this host by the ring itself and removes the originals, also those that no link leads
// to (processes that were killed before they had a name). Rings whose process still writes stay as they are. Returns
// what could not be collected, one line each. `shm_directory` is where the originals lie.
std::vector<std::string> CollectRings(const std::string& directory, const std::string& shm_directory = "/dev/shm");

}  // namespace lowtide::record
