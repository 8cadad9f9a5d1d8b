#include <algorithm>

#include "base/json.h"
#include "finding/json.h"
#include "finding/version.h"
#include "report/snapshot_places.h"
#include "report/snapshot_report.h"

namespace lowtide::report {
namespace {

using snapshot::AllocatorConfig;
using snapshot::DeviceReport;
using snapshot::Explanation;
using snapshot::Share;
using snapshot::WhatIf;

constexpr size_t kMostRows = 1000;  // of a table; the rest is summed in one last row
constexpr size_t kMostFrames = 24;

class Writer {
 public:
  Writer(const SnapshotView& view, const SnapshotOptions& options)
      : view_(view), places_(options.hide_sources) {}

  std::string Write() {
    json_.BeginObject().Field("lowtide", kVersion).Field("schema", 1);
    const Explanation& first = view_.files.front();
    json_.Key("devices").BeginArray();
    for (const DeviceReport& device : first.devices) Device(first, device);
    json_.EndArray();
    json_.Key("peak_by_stack").BeginArray();
    for (const DeviceReport& device : first.devices)
      Shares(first, &device.device, device.peak.by_stack, true);
    json_.EndArray();
    json_.Key("growth_by_stack").BeginArray();
    for (const DeviceReport& device : first.devices) GrowthRows(first, device);
    json_.EndArray();
    json_.Key("verdicts").BeginArray();
    for (const Explanation& file : view_.files) {
      for (const DeviceReport& device : file.devices) Verdict(file, device);
    }
    json_.EndArray();
    json_.Key("findings").BeginArray();
    for (const auto& finding : view_.findings) finding::WriteFinding(json_, places_.Of(finding));
    json_.EndArray();
    Settings(first);
    json_.Field("family", first.snapshot->family)
        .Field("file", places_.Path(first.snapshot->file))
        .Field("container", first.snapshot->container);
    json_.Field("stacks", first.snapshot->StackCount());
    json_.Key("missing").BeginArray();
    for (const auto& sentence : first.snapshot->missing) json_.Value(sentence);
    json_.EndArray();
    if (view_.files.size() > 1 || view_.ranks) Files();
    if (view_.diff) Diff();
    json_.EndObject();
    return json_.Take() + "\n";
  }

 private:
  void Device(const Explanation& file, const DeviceReport& device) {
    json_.BeginObject();
    json_.Field("device", device.device)
        .Field("reserved", device.reserved)
        .Field("allocated", device.allocated);
    json_.Field("active", device.active).Field("requested", device.requested);
    json_.Key("peak").BeginObject().Field("bytes", device.peak.bytes);
    json_.Key("event");
    if (device.lifetimes.peak_event >= 0) {
      json_.Value(device.lifetimes.peak_event);
    } else {
      json_.Null();
    }
    json_.Field("time_us", device.peak_time_us);
    json_.Key("by_category").BeginArray();
    for (const Share& share : device.peak.by_category) {
      json_.BeginObject()
          .Field("category", share.label)
          .Field("bytes", share.bytes)
          .Field("blocks", share.blocks)
          .Field("how", share.how)
          .EndObject();
    }
    json_.EndArray().Key("by_line").BeginArray();
    Shares(file, nullptr, device.peak.by_line, false);
    json_.EndArray().EndObject();
    json_.Key("oom").BeginArray();
    for (const auto& oom : device.ooms) Oom(file, oom);
    json_.EndArray();
    Fragmentation(device);
    json_.Field("segments", device.segments)
        .Field("blocks", device.blocks)
        .Field("events", device.events)
        .Field("stacks", device.stacks);
    GrowthSummary(device);
    if (device.check) Replay(device);
    json_.EndObject();
  }

  void Place(const std::string& file, int line) {
    json_.Key("file");
    if (file.empty()) {
      json_.Null().Key("line").Null();
    } else {
      json_.Value(places_.Path(file)).Field("line", line);
    }
  }

  void Frames(const Explanation& file, snapshot::StackId stack) {
    const auto& names = file.snapshot->names;
    json_.Key("frames").BeginArray();
    for (uint32_t id : file.sites->Shown(stack, kMostFrames)) {
      const auto& frame = names.frame(id);
      json_.BeginObject()
          .Field("name", names.text(frame.name))
          .Field("file", places_.Path(std::string(names.text(frame.file))))
          .Field("line", frame.line)
          .EndObject();
    }
    json_.EndArray();
  }

  void Shares(const Explanation& file, const int* device, const std::vector<Share>& shares, bool stacks) {
    uint64_t rest = 0, rest_blocks = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      const Share& share = shares[i];
      if (i >= kMostRows) {
        rest += share.bytes;
        rest_blocks += share.blocks;
        continue;
      }
      json_.BeginObject();
      if (device) json_.Field("device", *device);
      json_.Field("label", places_.Label(share.label))
          .Field("bytes", share.bytes)
          .Field("blocks", share.blocks);
      Place(share.file, share.line);
      json_.Field("function", share.function);
      if (stacks) {
        json_.Field("detail", share.detail)
            .Field("stack", share.stack)
            .Field("category", snapshot::CategoryName(share.category))
            .Field("how", share.how);
        json_.Field("largest_block", share.largest_block);
        Frames(file, share.stack);
      }
      json_.EndObject();
    }
    if (!rest_blocks) return;
    json_.BeginObject();
    if (device) json_.Field("device", *device);
    json_.Field("label", "smaller rows")
        .Field("bytes", rest)
        .Field("blocks", rest_blocks)
        .Key("file")
        .Null()
        .Key("line")
        .Null()
        .EndObject();
  }

  void Oom(const Explanation& file, const snapshot::OomReport& oom) {
    json_.BeginObject().Field("event", oom.event).Field("time_us", oom.time_us).Field("request", oom.request);
    json_.Field("device_free", oom.device_free)
        .Field("largest_free_block", oom.largest_free_block)
        .Field("free_in_segments", oom.free_in_segments);
    json_.Field("cause", oom.cause).Field("explanation", oom.explanation);
    json_.Field("reserved", oom.reserved)
        .Field("allocated", oom.allocated)
        .Field("driver_request", oom.driver_request);
    json_.Field("usable_free", oom.usable_free)
        .Field("largest_usable_block", oom.largest_usable_block)
        .Field("missing", oom.missing)
        .Field("outside", oom.outside);
    const auto& site = file.sites->Of(oom.stack);
    Place(site.file, site.line);
    json_.Key("free").BeginArray();
    for (const auto& group : oom.free_groups) {
      json_.BeginObject()
          .Field("why", group.why)
          .Field("bytes", group.bytes)
          .Field("largest", group.largest)
          .Field("blocks", group.blocks)
          .EndObject();
    }
    json_.EndArray().Key("holders").BeginArray();
    Shares(file, nullptr, oom.holders.by_line, false);
    json_.EndArray();
    if (oom.remedies) Search("replay", *oom.remedies);
    json_.EndObject();
  }

  void Fragmentation(const DeviceReport& device) {
    const auto& cut = device.fragmentation;
    json_.Key("fragmentation").BeginObject();
    json_.Field("releasable", cut.releasable)
        .Field("pinned_free", cut.pinned_free)
        .Field("rounding", cut.rounding)
        .Field("pending", cut.pending);
    json_.Field("largest_free_block", cut.largest_free_block).Field("free_blocks", cut.free_blocks);
    for (const auto& [key, parts] :
         {std::pair("by_stream", &cut.by_stream), std::pair("by_pool", &cut.by_pool)}) {
      json_.Key(key).BeginArray();
      for (const auto& part : *parts) {
        json_.BeginObject()
            .Field("name", part.name)
            .Field("reserved", part.reserved)
            .Field("free", part.free)
            .Field("largest_free", part.largest_free)
            .EndObject();
      }
      json_.EndArray();
    }
    json_.EndObject();
  }

  void GrowthSummary(const DeviceReport& device) {
    const auto& growth = device.growth;
    json_.Key("growth")
        .BeginObject()
        .Field("verdict", growth.verdict)
        .Field("bytes_per_step", growth.bytes_per_step);
    json_.Field("steps", growth.steps.ends.size())
        .Field("steps_by", growth.steps.how)
        .Field("reason", growth.reason)
        .EndObject();
  }

  void GrowthRows(const Explanation& file, const DeviceReport& device) {
    for (const auto& row : device.growth.stacks) {
      json_.BeginObject()
          .Field("device", device.device)
          .Field("label", places_.Label(row.label))
          .Field("verdict", row.verdict);
      json_.Field("bytes", row.bytes).Field("blocks", row.blocks).Field("bytes_per_step", row.bytes_per_step);
      json_.Key("interval").BeginArray().Value(row.interval.first).Value(row.interval.second).EndArray();
      json_.Field("steps_with_births", row.steps_with_births);
      Place(row.file, row.line);
      json_.Field("function", row.function).Field("stack", row.stack);
      Frames(file, row.stack);
      json_.EndObject();
    }
  }

  void Verdict(const Explanation& file, const DeviceReport& device) {
    const auto& growth = device.growth;
    const bool leak = growth.verdict == "leak";
    json_.BeginObject()
        .Field("pool", "cuda:" + std::to_string(device.device))
        .Field("rank", file.rank)
        .Field("verdict", growth.verdict);
    json_.Field("watch", leak).Field("alarm", leak).Field("confidence", growth.confidence);
    json_.Key("bytes_per_step");
    if (growth.verdict == "insufficient") {
      json_.Null().Key("interval").Null();
    } else {
      json_.Value(growth.bytes_per_step)
          .Key("interval")
          .BeginArray()
          .Value(growth.interval.first)
          .Value(growth.interval.second)
          .EndArray();
    }
    json_.Field("onset_step", growth.onset_step);
    json_.Key("phase");
    if (leak) {
      json_.Value("step");
    } else {
      json_.Null();
    }
    json_.Key("steps_to_oom")
        .Null()
        .Field("steps_seen", growth.steps.ends.size())
        .Field("steps_needed", growth.steps_needed)
        .EndObject();
  }

  void Outcome(const WhatIf& outcome) {
    json_.BeginObject()
        .Field("settings", outcome.settings)
        .Field("peak_reserved", outcome.stats.peak_reserved)
        .Field("peak_allocated", outcome.stats.peak_allocated);
    json_.Field("segments", outcome.stats.peak_segments)
        .Field("driver_allocs", outcome.stats.driver_allocs)
        .Field("driver_frees", outcome.stats.driver_frees);
    json_.Field("retries", outcome.stats.retries);
    const bool died = outcome.died_at_event >= 0 || outcome.died_request > 0;
    json_.Field("died", died).Key("died_at_event");
    if (outcome.died_at_event >= 0) {
      json_.Value(outcome.died_at_event);
    } else {
      json_.Null();
    }
    json_.Field("oom_events", outcome.oom_events)
        .Field("oom_events_served", outcome.oom_events_served)
        .EndObject();
  }

  void Search(const char* key, const snapshot::Recommendation& search) {
    json_.Key(key).BeginObject().Key("capacity");
    if (search.capacity == AllocatorConfig::kUnlimited) {
      json_.Null();
    } else {
      json_.Value(search.capacity);
    }
    json_.Key("recorded");
    Outcome(search.recorded);
    json_.Key("outcomes").BeginArray();
    for (const WhatIf& outcome : search.outcomes) Outcome(outcome);
    json_.EndArray().Field("limits", search.limits).EndObject();
  }

  void Replay(const DeviceReport& device) {
    json_.Key("replay").BeginObject();
    const auto& check = *device.check;
    json_.Key("check")
        .BeginObject()
        .Field("allocs", check.allocs)
        .Field("addresses_right", check.addresses_right)
        .Field("segments", check.segments);
    json_.Field("segments_right", check.segments_right)
        .Field("maps", check.maps)
        .Field("maps_right", check.maps_right)
        .Field("single_stream", check.single_stream)
        .EndObject();
    if (device.recorded) {
      json_.Key("recorded");
      Outcome(*device.recorded);
    }
    if (device.what_if) {
      json_.Key("what_if");
      Outcome(*device.what_if);
    }
    if (device.search) Search("search", *device.search);
    json_.EndObject();
  }

  void Settings(const Explanation& file) {
    const auto& settings = file.snapshot->settings;
    json_.Key("settings").BeginObject();
    if (settings.present) {
      json_.Field("PYTORCH_CUDA_ALLOC_CONF", settings.conf).Field("max_split_size", settings.max_split_size);
      json_.Field("garbage_collection_threshold", settings.garbage_collection_threshold)
          .Field("expandable_segments", settings.expandable_segments);
      json_.Key("roundup_power2_divisions").BeginObject();
      for (const auto& [mib, divisions] : settings.roundup_power2_divisions)
        json_.Field(std::to_string(mib), divisions);
      json_.EndObject();
      for (const auto& [key, value] : settings.other) json_.Field(key, value);
    }
    json_.EndObject();
  }

  void Files() {
    json_.Key("files").BeginArray();
    for (const Explanation& file : view_.files) {
      json_.BeginObject()
          .Field("file", places_.Path(file.snapshot->file))
          .Field("rank", file.rank)
          .Field("family", file.snapshot->family)
          .Key("devices")
          .BeginArray();
      for (const DeviceReport& device : file.devices) Device(file, device);
      json_.EndArray().EndObject();
    }
    json_.EndArray();
    if (!view_.ranks) return;
    const auto& ranks = *view_.ranks;
    json_.Key("ranks")
        .BeginObject()
        .Field("imbalance", ranks.imbalance)
        .Field("median_peak", ranks.median_peak);
    auto row = [&](const char* key, int index) {
      json_.Key(key);
      if (index < 0) {
        json_.Null();
      } else {
        const auto& chosen = ranks.rows[static_cast<size_t>(index)];
        json_.BeginObject().Field("rank", chosen.rank).Field("device", chosen.device).EndObject();
      }
    };
    row("highest", ranks.highest);
    row("first_dead", ranks.first_dead);
    json_.Key("rows").BeginArray();
    for (const auto& item : ranks.rows) {
      json_.BeginObject()
          .Field("rank", item.rank)
          .Field("device", item.device)
          .Field("file", places_.Path(item.file))
          .Field("peak", item.peak);
      json_.Field("reserved", item.reserved)
          .Field("allocated", item.allocated)
          .Field("died", item.died)
          .Field("verdict", item.growth)
          .EndObject();
    }
    json_.EndArray().EndObject();
  }

  void Changes(const char* key, const std::vector<snapshot::Change>& changes) {
    json_.Key(key).BeginArray();
    for (size_t i = 0; i < changes.size() && i < kMostRows; ++i) {
      const auto& change = changes[i];
      json_.BeginObject()
          .Field("label", places_.Label(change.label))
          .Field("before", change.before)
          .Field("after", change.after)
          .Field("delta", change.delta());
      Place(change.file, change.line);
      json_.EndObject();
    }
    json_.EndArray();
  }

  void Diff() {
    json_.Key("diff")
        .BeginObject()
        .Field("before", places_.Path(view_.diff_file))
        .Field("after", places_.Path(view_.files.front().snapshot->file));
    json_.Key("devices").BeginArray();
    for (const auto& diff : *view_.diff) {
      json_.BeginObject().Field("device", diff.device);
      json_.Field("peak_before", diff.peak_before)
          .Field("peak_after", diff.peak_after)
          .Field("held_before", diff.held_before)
          .Field("held_after", diff.held_after);
      json_.Field("reserved_before", diff.reserved_before).Field("reserved_after", diff.reserved_after);
      Changes("peak_by_stack", diff.by_stack);
      Changes("peak_by_line", diff.by_line);
      Changes("held_by_stack", diff.held_by_stack);
      Changes("held_by_line", diff.held_by_line);
      json_.EndObject();
    }
    json_.EndArray().EndObject();
  }

  const SnapshotView& view_;
  SnapshotPlaces places_;
  JsonWriter json_{1};
};

}  // namespace

std::string SnapshotToJson(const SnapshotView& view, const SnapshotOptions& options) {
  return Writer(view, options).Write();
}

}  // namespace lowtide::report
