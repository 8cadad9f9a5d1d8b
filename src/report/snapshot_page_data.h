#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "report/snapshot_places.h"
#include "snapshot/explain.h"

namespace lowtide::report {

// What the script of the snapshot page draws: levels of detail of the timeline, who holds what over time, the
// flame graph's tree, segments and blocks. Long arrays are 32-bit, in units of 512 bytes, deflated, in
// base64.
class SnapshotPageData {
 public:
  explicit SnapshotPageData(const SnapshotPlaces& places) : places_(places) { devices_.BeginArray(); }

  // Returns the device's index on the page.
  size_t Add(const snapshot::Explanation& file, const snapshot::DeviceReport& device);
  size_t ShownSegments(const snapshot::DeviceReport& device) const;
  std::string Json(bool chinese);

 private:
  uint32_t Label(const std::string& text);
  void Timeline(const snapshot::Explanation& file, const snapshot::DeviceReport& device);
  void Groups(const snapshot::Explanation& file, const snapshot::DeviceReport& device);
  void Events(const snapshot::Explanation& file, const snapshot::DeviceReport& device);
  void Flame(const snapshot::Explanation& file, const snapshot::DeviceReport& device);
  void Segments(const snapshot::Explanation& file, const snapshot::DeviceReport& device);
  void Array(const char* key, const std::vector<uint32_t>& values);

  SnapshotPlaces places_;
  JsonWriter devices_;
  size_t count_ = 0;
  std::vector<std::string> labels_;
  std::unordered_map<std::string, uint32_t> label_ids_;
};

}  // namespace lowtide::report
