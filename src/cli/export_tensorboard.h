#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "cli/export_fleet.h"
#include "report/tensorboard.h"

namespace lowtide::cli {

// Keeps TensorBoard's event files of all ranks: FOLDER/<run>/rank<N>/events.out.tfevents.*, tags
// memory/<pool> in bytes and step/seconds. Every step of a rank's first thousand, later one a second.
class TensorBoardExport {
 public:
  explicit TensorBoardExport(std::string folder) : folder_(std::move(folder)) {}

  // Writes what came since the last call; throws Error when a file cannot be written.
  void Write(const Fleet& fleet);

 private:
  struct Rank {
    std::unique_ptr<report::EventFile> file;
    uint64_t last_step = 0, last_device_step = 0, points = 0, device_points = 0;
    int64_t last_ns = 0, last_device_ns = 0;
  };

  void WriteRank(const std::string& run, const Follower::Followed& followed);

  std::string folder_;
  std::map<std::string, Rank> ranks_;  // by folder and process
};

}  // namespace lowtide::cli
