#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "finding/version.h"
#include "report/snapshot_levels.h"
#include "report/snapshot_places.h"
#include "report/snapshot_report.h"

namespace lowtide::report {
namespace {

using snapshot::Action;
using snapshot::DeviceReport;
using snapshot::Event;
using snapshot::Explanation;

constexpr size_t kMostCounters = 20000;  // points of a counter; viewers become slow beyond

// The event's time, or its number where the file has no times (torch 2.1 and before).
int64_t TimeOf(const Event& event, size_t number) {
  return event.flags & Event::kHasTime ? static_cast<int64_t>(event.time_us) : static_cast<int64_t>(number);
}

class TraceWriter {
 public:
  explicit TraceWriter(bool hide) : places_(hide) {}
  std::string Write(const SnapshotView& view) {
    json_.BeginObject()
        .Field("displayTimeUnit", "ms")
        .Key("otherData")
        .BeginObject()
        .Field("lowtide", kVersion)
        .EndObject();
    json_.Key("traceEvents").BeginArray();
    for (const Explanation& file : view.files) {
      Name(file.rank, fmt::format("rank {}: {}", file.rank, places_.Path(file.snapshot->file)));
      for (const DeviceReport& device : file.devices) Device(file, device);
      Annotations(file);
    }
    json_.EndArray().EndObject();
    return json_.Take() + "\n";
  }

 private:
  void Name(int pid, const std::string& name) {
    json_.BeginObject()
        .Field("ph", "M")
        .Field("pid", pid)
        .Field("tid", 0)
        .Field("name", "process_name")
        .Key("args")
        .BeginObject()
        .Field("name", name)
        .EndObject()
        .EndObject();
  }
  void Device(const Explanation& file, const DeviceReport& device) {
    const Levels levels = MeasureLevels(device.lifetimes, device.reserved, kMostCounters);
    const std::string counter = fmt::format("cuda:{} memory", device.device);
    for (size_t i = 0; i < levels.high.size(); ++i) {
      const int64_t time =
          levels.time_us[i] ? levels.time_us[i] : static_cast<int64_t>(i * levels.per_bucket);
      json_.BeginObject().Field("ph", "C").Field("pid", file.rank).Field("ts", time).Field("name", counter);
      json_.Key("args")
          .BeginObject()
          .Field("live", levels.high[i])
          .Field("reserved", levels.reserved[i])
          .EndObject()
          .EndObject();
    }
    for (const auto& oom : device.ooms) {
      const Event& event = device.lifetimes.events[oom.event];
      json_.BeginObject()
          .Field("ph", "i")
          .Field("s", "g")
          .Field("pid", file.rank)
          .Field("tid", device.device)
          .Field("ts", TimeOf(event, oom.event));
      json_.Field("name", fmt::format("out of memory: {} bytes", oom.request))
          .Key("args")
          .BeginObject()
          .Field("cause", oom.cause)
          .Field("explanation", oom.explanation)
          .EndObject()
          .EndObject();
    }
  }
  void Annotations(const Explanation& file) {
    for (const auto& annotation : file.snapshot->annotations) {
      json_.BeginObject()
          .Field("ph", annotation.start ? "B" : "E")
          .Field("pid", file.rank)
          .Field("tid", std::max(0, annotation.device))
          .Field("ts", annotation.time_us);
      json_.Field("name", file.snapshot->names.text(annotation.name)).EndObject();
    }
  }

  SnapshotPlaces places_;
  JsonWriter json_;
};

}  // namespace

std::string SnapshotToTrace(const SnapshotView& view, const SnapshotOptions& options) {
  return TraceWriter(options.hide_sources).Write(view);
}

}  // namespace lowtide::report
