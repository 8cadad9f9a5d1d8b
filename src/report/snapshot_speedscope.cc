#include <fmt/core.h>

#include <unordered_map>

#include "base/json.h"
#include "finding/version.h"
#include "report/snapshot_places.h"
#include "report/snapshot_report.h"

namespace lowtide::report {
namespace {

using snapshot::Explanation;
using snapshot::Share;

// Frames of all profiles, shared.
class FrameTable {
 public:
  size_t Id(const std::string& name, const std::string& file, int line) {
    const std::string key = fmt::format("{}\n{}\n{}", name, file, line);
    const auto [it, is_new] = ids_.emplace(key, ids_.size());
    if (is_new) {
      json_.BeginObject().Field("name", name);
      if (!file.empty()) json_.Field("file", file);
      if (line) json_.Field("line", line);
      json_.EndObject();
    }
    return it->second;
  }
  FrameTable() { json_.BeginArray(); }
  std::string Take() {
    json_.EndArray();
    return json_.Take();
  }

 private:
  std::unordered_map<std::string, size_t> ids_;
  JsonWriter json_;
};

// Outermost first, as the format wants; C++ frames folded into the operator.
std::vector<size_t> Path(const Explanation& file, const Share& share, const SnapshotPlaces& places,
                         FrameTable& frames) {
  std::vector<size_t> path{frames.Id(snapshot::CategoryName(share.category), "", 0)};
  const auto& names = file.snapshot->names;
  const auto stack = names.stack(share.stack);
  for (size_t i = stack.size(); i-- > 0;) {
    const auto& frame = names.frame(stack[i]);
    const std::string source(names.text(frame.file));
    if (!snapshot::IsPythonFile(source)) continue;
    const std::string shown = places.Path(source);
    path.push_back(frames.Id(fmt::format("{} ({})", names.text(frame.name), snapshot::ShortPath(shown)),
                             shown, frame.line));
  }
  const auto& site = file.sites->Of(share.stack);
  if (path.size() == 1) path.push_back(frames.Id(places.Label(share.label), "", 0));
  if (share.stack && !site.op.empty()) path.push_back(frames.Id(site.op, "", 0));
  return path;
}

}  // namespace

std::string SnapshotToSpeedscope(const SnapshotView& view, const SnapshotOptions& options) {
  const SnapshotPlaces places(options.hide_sources);
  FrameTable frames;
  JsonWriter profiles;
  profiles.BeginArray();
  for (const Explanation& file : view.files) {
    for (const auto& device : file.devices) {
      JsonWriter samples, weights;
      samples.BeginArray();
      weights.BeginArray();
      uint64_t total = 0;
      for (const Share& share : device.peak.by_stack) {
        samples.BeginArray();
        for (size_t id : Path(file, share, places, frames)) samples.Value(id);
        samples.EndArray();
        weights.Value(share.bytes);
        total += share.bytes;
      }
      samples.EndArray();
      weights.EndArray();
      profiles.BeginObject()
          .Field("type", "sampled")
          .Field("name",
                 fmt::format("{} cuda:{} at its peak", places.Path(file.snapshot->file), device.device));
      profiles.Field("unit", "bytes").Field("startValue", 0).Field("endValue", total);
      profiles.Key("samples").Raw(samples.Take()).Key("weights").Raw(weights.Take()).EndObject();
    }
  }
  profiles.EndArray();
  JsonWriter json;
  json.BeginObject()
      .Field("$schema", "https://www.speedscope.app/file-format-schema.json")
      .Field("exporter", std::string("lowtide ") + kVersion);
  json.Field("name", "lowtide snapshot")
      .Key("shared")
      .BeginObject()
      .Key("frames")
      .Raw(frames.Take())
      .EndObject();
  json.Key("profiles").Raw(profiles.Take()).EndObject();
  return json.Take() + "\n";
}

}  // namespace lowtide::report
