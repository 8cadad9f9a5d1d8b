// The top of a snapshot: segments and traces are gathered per device, settings and annotations read.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "snapshot/builder.h"
#include "snapshot/family.h"

namespace lowtide::snapshot {

void Builder::Finish(const Value& top) {
  FamilyFacts facts;
  if (top.kind == Value::kList || top.kind == Value::kEmptyList) {
    facts.list_form = true;
    FinishSegments(top, snapshot_.segments);
  } else if (top.kind == Value::kDict) {
    const std::vector<Value> pairs = nodes_[top.id].items;
    const Value* segments = Find(pairs, kSegments);
    const Value* traces = Find(pairs, kDeviceTraces);
    if (!segments && !traces && !Find(pairs, kHostSegments)) {
      Fail("the file holds a dict, but none of 'segments' and 'device_traces' that make a memory snapshot");
    }
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      if (pairs[i].kind == Value::kString && pairs[i].id < kKnownCount)
        facts.top_keys |= uint64_t{1} << pairs[i].id;
    }
    if (segments) FinishSegments(*segments, snapshot_.segments);
    if (traces) FinishTraces(*traces, snapshot_.traces);
    if (const Value* host = Find(pairs, kHostSegments)) FinishSegments(*host, snapshot_.host_segments);
    if (const Value* host = Find(pairs, kHostTraces)) FinishTraces(*host, snapshot_.host_traces);
    if (const Value* annotations = Find(pairs, kExternalAnnotations)) FinishAnnotations(*annotations);
    if (const Value* settings = Find(pairs, kAllocatorSettings)) FinishSettings(*settings);
    if (const Value* sources = Find(pairs, kSourceCode)) FinishSources(*sources);
  } else {
    Fail("the file's top object is neither a dict nor a list, so it is no memory snapshot");
  }
  facts.event_keys = event_keys;
  facts.block_keys = block_keys;
  facts.segment_keys = segment_keys;
  NameFamily(facts, snapshot_);
}

// A copy of the pairs, since converting may add nodes and move them.
Value Builder::ConvertCopy(const Value& dict) {
  const std::vector<Value> pairs(DictItems(dict).begin(), DictItems(dict).end());
  return Convert(pairs);
}

void Builder::WantList(const Value& value, const char* what) const {
  if (value.kind != Value::kList && value.kind != Value::kEmptyList && value.kind != Value::kNone) {
    Fail(fmt::format("'{}' is not a list", what));
  }
}

void Builder::FinishSegments(const Value& list, std::vector<Segment>& out) {
  WantList(list, "segments");
  const std::vector<Value> items(Items(list).begin(), Items(list).end());
  uint64_t blocks = 0;
  for (const Value& item : items) {
    const Value run = item.kind == Value::kDict ? ConvertCopy(item) : item;
    if (run.kind != Value::kSegments) Fail("an entry of 'segments' is not a segment");
    node_bytes_ += run.count * sizeof(Segment);
    CheckBudget(0);
    for (uint32_t i = 0; i < run.count; ++i) blocks += segments_[run.id + i].block_count;
    if (blocks > MostShared(snapshot_.blocks.size())) Fail("a segment is listed many times");
    out.insert(out.end(), segments_.begin() + run.id, segments_.begin() + run.id + run.count);
  }
}

DeviceTrace Builder::Gather(int device, const Value& list) {
  DeviceTrace trace;
  trace.device = device;
  if (list.kind == Value::kEmptyList || list.kind == Value::kNone) return trace;
  if (list.kind != Value::kList) Fail("an entry of 'device_traces' is not a list of events");
  const std::vector<Value> items = nodes_[list.id].items;
  auto& events = snapshot_.events;
  if (items.size() == 1 && items[0].kind == Value::kEvents) {
    trace.first = items[0].id;
    trace.count = items[0].count;
    gathered_events_ += trace.count;
    if (gathered_events_ > MostShared(events.size())) Fail("many devices share their events");
    return trace;
  }
  std::vector<Value> runs;
  for (const Value& item : items) {
    const Value run = item.kind == Value::kDict ? ConvertCopy(item) : item;
    if (run.kind != Value::kEvents) Fail("an entry of 'device_traces' is not an event");
    runs.push_back(run);
  }
  trace.first = events.size();
  for (const Value& run : runs) {
    for (uint32_t i = 0; i < run.count; ++i) {
      const Event event = events[run.id + i];
      events.push_back(event);
    }
    CheckBudget(0);
  }
  trace.count = events.size() - trace.first;
  gathered_events_ += trace.count;
  return trace;
}

void Builder::FinishTraces(const Value& list, std::vector<DeviceTrace>& out) {
  WantList(list, "device_traces");
  const std::vector<Value> items(Items(list).begin(), Items(list).end());
  // A list of events where lists per device are expected: one device.
  if (!items.empty() && items[0].kind == Value::kEvents) {
    out.push_back(Gather(0, list));
    return;
  }
  for (size_t i = 0; i < items.size(); ++i) out.push_back(Gather(static_cast<int>(i), items[i]));
}

void Builder::FinishAnnotations(const Value& list) {
  std::vector<Annotation> all = std::move(snapshot_.annotations);
  snapshot_.annotations.clear();
  for (const Value& run : Items(list)) {
    if (run.kind != Value::kAnnotations) continue;
    node_bytes_ += run.count * sizeof(Annotation);
    CheckBudget(0);
    snapshot_.annotations.insert(snapshot_.annotations.end(), all.begin() + run.id,
                                 all.begin() + run.id + run.count);
  }
}

void Builder::FinishSettings(const Value& dict) {
  AllocatorSettings& settings = snapshot_.settings;
  Pairs pairs = DictItems(dict);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const std::string key = Text(pairs[i]);
    const Value& value = pairs[i + 1];
    settings.present = true;
    if (key == "PYTORCH_CUDA_ALLOC_CONF" || key == "PYTORCH_ALLOC_CONF") {
      if (!Text(value).empty()) settings.conf = Text(value);
    } else if (key == "max_split_size") {
      settings.max_split_size = ToInt(value, "max_split_size");
    } else if (key == "garbage_collection_threshold") {
      settings.garbage_collection_threshold =
          value.kind == Value::kFloat ? value.real
                                      : static_cast<double>(ToInt(value, "garbage_collection_threshold"));
    } else if (key == "expandable_segments") {
      settings.expandable_segments = ToInt(value, "expandable_segments") != 0;
    } else if (key == "roundup_power2_divisions") {
      Pairs rows = DictItems(value);
      for (size_t j = 0; j + 1 < rows.size(); j += 2) {
        const std::string mib = Text(rows[j]);
        uint64_t number = 0;
        std::from_chars(mib.data(), mib.data() + mib.size(), number);
        settings.roundup_power2_divisions[number] =
            static_cast<uint64_t>(ToInt(rows[j + 1], "roundup_power2_divisions"));
      }
    } else {
      settings.other[key] = Text(value);
    }
  }
}

void Builder::FinishSources(const Value& dict) {
  Pairs pairs = DictItems(dict);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pairs[i].kind == Value::kString && pairs[i + 1].kind == Value::kString) {
      snapshot_.sources[Text(pairs[i])] = Text(pairs[i + 1]);
    }
  }
}

}  // namespace lowtide::snapshot
