// Where ring files lie: in /dev/shm while the run lives (a disk would stall the training), with links in the run's
// folder; `CollectRings` turns the links into files.
#pragma once

#include <string>
#include <vector>

namespace lowtide::record {

// "lowtide-<16 hex digits>-": how the names of a run folder's files in /dev/shm begin.
std::string ShmPrefix(const std::string& directory);

// Replaces every link to a ring by the ring itself and removes the originals, also those that no link leads to
// (processes that were killed before they had a name). Returns what could not be collected, one line each.
// `shm_directory` is where the originals lie.
std::vector<std::string> CollectRings(const std::string& directory, const std::string& shm_directory = "/dev/shm");

}  // namespace lowtide::record
