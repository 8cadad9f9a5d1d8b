#include "report/snapshot_page_data.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <map>
#include <new>

#include "report/snapshot_levels.h"

namespace lowtide::report {
namespace {

using snapshot::Action;
using snapshot::DeviceReport;
using snapshot::Event;
using snapshot::Explanation;
using snapshot::Lifetimes;

constexpr uint64_t kUnit = 512;
constexpr size_t kGroups = 14;  // lines of code told apart by colour; the rest is one band
constexpr size_t kGroupBuckets = 4096;
constexpr size_t kMostEvents = 3'000'000;  // with action, size and line at the pointer
constexpr size_t kMostSegments = 400;
constexpr int kMostDepth = 60;

uint32_t Units(uint64_t bytes) {
  return static_cast<uint32_t>(std::min<uint64_t>(0xffffffff, (bytes + kUnit / 2) / kUnit));
}

std::string Base64(const std::vector<uint8_t>& bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = bytes.size() - i;
    const uint32_t bits = static_cast<uint32_t>(bytes[i]) << 16 |
                          (left > 1 ? static_cast<uint32_t>(bytes[i + 1]) << 8 : 0) |
                          (left > 2 ? bytes[i + 2] : 0u);
    out += kDigits[bits >> 18];
    out += kDigits[bits >> 12 & 63];
    out += left > 1 ? kDigits[bits >> 6 & 63] : '=';
    out += left > 2 ? kDigits[bits & 63] : '=';
  }
  return out;
}

std::string Pack(const std::vector<uint32_t>& values) {
  if (values.empty()) return {};
  uLongf size = compressBound(static_cast<uLong>(values.size() * 4));
  std::vector<uint8_t> packed(size);
  if (compress2(packed.data(), &size, reinterpret_cast<const Bytef*>(values.data()),
                static_cast<uLong>(values.size() * 4), 3) != Z_OK)
    throw std::bad_alloc();
  packed.resize(size);
  return Base64(packed);
}

std::vector<uint32_t> AllUnits(const std::vector<uint64_t>& values) {
  std::vector<uint32_t> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), Units);
  return out;
}

}  // namespace

uint32_t SnapshotPageData::Label(const std::string& text) {
  const auto [it, is_new] = label_ids_.emplace(text, static_cast<uint32_t>(labels_.size()));
  if (is_new) labels_.push_back(text);
  return it->second;
}

void SnapshotPageData::Array(const char* key, const std::vector<uint32_t>& values) {
  devices_.Field(key, Pack(values));
}

size_t SnapshotPageData::Add(const Explanation& file, const DeviceReport& device) {
  devices_.BeginObject().Field("events", device.events).Field("peak", device.peak.bytes);
  Timeline(file, device);
  Groups(file, device);
  Events(file, device);
  Flame(file, device);
  Segments(file, device);
  devices_.EndObject();
  return count_++;
}

void SnapshotPageData::Timeline(const Explanation&, const DeviceReport& device) {
  const Levels all = MeasureLevels(device.lifetimes, device.reserved, std::max<size_t>(1, device.events));
  Array("live", AllUnits(all.high));
  devices_.Key("levels").BeginArray();
  for (size_t per = 8; device.events / per > 256; per *= 8) {
    std::vector<uint32_t> low, high;
    for (size_t i = 0; i < all.high.size(); i += per) {
      const size_t end = std::min(all.high.size(), i + per);
      low.push_back(Units(*std::min_element(all.high.begin() + static_cast<std::ptrdiff_t>(i),
                                            all.high.begin() + static_cast<std::ptrdiff_t>(end))));
      high.push_back(Units(*std::max_element(all.high.begin() + static_cast<std::ptrdiff_t>(i),
                                             all.high.begin() + static_cast<std::ptrdiff_t>(end))));
    }
    devices_.BeginObject().Field("per", per).Field("low", Pack(low)).Field("high", Pack(high)).EndObject();
  }
  devices_.EndArray();
  const Levels reserved = MeasureLevels(device.lifetimes, device.reserved, kGroupBuckets);
  Array("reserved", AllUnits(reserved.reserved));
  devices_.Field("reserved_per", reserved.per_bucket);
  uint64_t most = device.reserved;
  for (uint64_t value : reserved.reserved) most = std::max(most, value);
  devices_.Field("reserved_peak", most);
  devices_.Key("marks").BeginArray();
  if (device.lifetimes.peak_event >= 0)
    devices_.BeginArray().Value(device.lifetimes.peak_event).Value("peak").Value("--blue").EndArray();
  for (const auto& oom : device.ooms)
    devices_.BeginArray().Value(oom.event).Value("out of memory").Value("--red").EndArray();
  devices_.EndArray();
}

// Bytes that each of the largest lines at the peak holds at each bucket's end.
void SnapshotPageData::Groups(const Explanation& file, const DeviceReport& device) {
  const auto& lifetimes = device.lifetimes;
  std::map<std::string, uint32_t> group_of_label;
  std::vector<std::string> names;
  for (const auto& share : device.peak.by_line) {
    if (names.size() == kGroups) break;
    group_of_label[share.label] = static_cast<uint32_t>(names.size());
    names.push_back(places_.Label(share.label));
  }
  const auto rest = static_cast<uint32_t>(names.size());
  names.push_back("other lines");
  std::vector<uint32_t> group_of_stack(file.snapshot->names.stack_count(), 0xffffffff);
  const std::string older = "unattributed: allocated before recording began";
  auto group = [&](snapshot::StackId stack, bool is_older, bool empty) {
    if (!stack) {
      auto it = group_of_label.find(is_older ? older
                                    : empty  ? "unattributed: no Python frame (autograd thread)"
                                             : "unattributed: no stack recorded");
      return it == group_of_label.end() ? rest : it->second;
    }
    uint32_t& known = group_of_stack[stack];
    if (known == 0xffffffff) {
      auto it = group_of_label.find(file.sites->Of(stack).label);
      known = it == group_of_label.end() ? rest : it->second;
    }
    return known;
  };
  std::vector<int64_t> held(names.size());
  std::vector<uint32_t> older_group(lifetimes.events.size() ? lifetimes.older.size() : 0);
  std::unordered_map<int64_t, std::pair<uint32_t, int64_t>> older_frees;
  for (const auto& block : lifetimes.older) {
    const uint32_t g = group(block.stack, true, false);
    held[g] += static_cast<int64_t>(block.bytes);
    if (block.free_event >= 0) older_frees[block.free_event] = {g, static_cast<int64_t>(block.bytes)};
  }
  const size_t per = std::max<size_t>(1, (lifetimes.events.size() + kGroupBuckets - 1) / kGroupBuckets);
  std::vector<uint32_t> table;
  for (size_t i = 0; i < lifetimes.events.size(); ++i) {
    const Event& event = lifetimes.events[i];
    if (event.action() == Action::kAlloc) {
      held[group(event.stack, false, event.flags & Event::kEmptyStack)] += static_cast<int64_t>(event.size);
    } else if (event.action() == Action::kFreeCompleted) {
      const uint32_t alloc = lifetimes.partner[i];
      if (alloc != Lifetimes::kNever) {
        const Event& born = lifetimes.events[alloc];
        held[group(born.stack, false, born.flags & Event::kEmptyStack)] -= static_cast<int64_t>(born.size);
      } else if (auto it = older_frees.find(static_cast<int64_t>(i)); it != older_frees.end()) {
        held[it->second.first] -= it->second.second;
      }
    }
    if (i % per == per - 1 || i + 1 == lifetimes.events.size()) {
      for (int64_t bytes : held) table.push_back(Units(static_cast<uint64_t>(std::max<int64_t>(0, bytes))));
    }
  }
  Array("groups", table);
  devices_.Field("group_per", per).Field("has_rest", true).Key("group_names").BeginArray();
  for (const auto& name : names) devices_.Value(name);
  devices_.EndArray();
}

void SnapshotPageData::Events(const Explanation& file, const DeviceReport& device) {
  std::vector<uint32_t> actions, sizes, stacks;
  std::unordered_map<snapshot::StackId, uint32_t> labels;
  if (device.events <= kMostEvents) {
    for (const Event& event : device.lifetimes.events) {
      actions.push_back(static_cast<uint32_t>(event.action()));
      sizes.push_back(Units(event.size));
      auto it = labels.find(event.stack);
      if (it == labels.end())
        it = labels
                 .emplace(event.stack,
                          Label(event.stack ? places_.Label(file.sites->Of(event.stack).label) : ""))
                 .first;
      stacks.push_back(it->second);
    }
  }
  Array("actions", actions);
  Array("sizes", sizes);
  Array("stacks", stacks);
  devices_.Key("action_names").BeginArray();
  for (int i = 0; i <= static_cast<int>(Action::kUnknown); ++i)
    devices_.Value(snapshot::ActionName(static_cast<Action>(i)));
  devices_.EndArray();
}

void SnapshotPageData::Flame(const Explanation& file, const DeviceReport& device) {
  std::vector<uint32_t> parent{0}, name{Label("all")};
  std::vector<uint64_t> value{0};
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> ids;
  const auto& names = file.snapshot->names;
  for (const auto& share : device.peak.by_stack) {
    std::vector<std::string> path{snapshot::CategoryName(share.category)};
    const auto stack = names.stack(share.stack);
    for (size_t i = stack.size(); i-- > 0 && path.size() < kMostDepth;) {
      const auto& frame = names.frame(stack[i]);
      const std::string source(names.text(frame.file));
      if (!snapshot::IsPythonFile(source)) continue;
      path.push_back(fmt::format("{} ({}:{})", names.text(frame.name),
                                 places_.hide() ? places_.Path(source) : snapshot::ShortPath(source),
                                 frame.line));
    }
    const auto& site = file.sites->Of(share.stack);
    if (path.size() == 1) path.push_back(places_.Label(share.label));
    if (share.stack && !site.op.empty()) path.push_back(site.op);
    uint32_t node = 0;
    value[0] += share.bytes;
    for (const std::string& step : path) {
      const auto key = std::pair(node, Label(step));
      const auto [it, is_new] = ids.emplace(key, static_cast<uint32_t>(parent.size()));
      if (is_new) {
        parent.push_back(node);
        name.push_back(key.second);
        value.push_back(0);
      }
      node = it->second;
      value[node] += share.bytes;
    }
  }
  auto list = [&](const char* key, const auto& values) {
    devices_.Key(key).BeginArray();
    for (auto item : values) devices_.Value(item);
    devices_.EndArray();
  };
  devices_.Key("flame").BeginObject();
  list("parent", parent);
  list("name", name);
  list("value", value);
  devices_.EndObject();
}

size_t SnapshotPageData::ShownSegments(const DeviceReport& device) const {
  return std::min<size_t>(device.segments, kMostSegments);
}

void SnapshotPageData::Segments(const Explanation& file, const DeviceReport& device) {
  std::vector<const snapshot::Segment*> segments;
  for (const auto& segment : file.snapshot->segments) {
    if (segment.device == device.device) segments.push_back(&segment);
  }
  std::stable_sort(segments.begin(), segments.end(),
                   [](const auto* a, const auto* b) { return a->total_size > b->total_size; });
  if (segments.size() > kMostSegments) segments.resize(kMostSegments);
  std::vector<uint32_t> blocks;
  devices_.Key("segments").BeginArray();
  for (const auto* segment : segments) {
    const std::string label = fmt::format("{}{} {:#x}", segment->large ? "large" : "small",
                                          segment->expandable ? " exp." : "", segment->address);
    devices_.BeginArray()
        .Value(label)
        .Value(segment->total_size)
        .Value(blocks.size() / 3)
        .Value(segment->block_count)
        .EndArray();
    for (const auto& block : file.snapshot->BlocksOf(*segment)) {
      blocks.push_back(Units(block.size));
      blocks.push_back(block.state);
      blocks.push_back(
          Label(block.stack ? places_.Label(file.sites->Of(block.stack).label) : "no stack recorded"));
    }
  }
  devices_.EndArray();
  Array("blocks", blocks);
}

std::string SnapshotPageData::Json(bool chinese) {
  JsonWriter json;
  json.BeginObject().Key("devices").Raw(devices_.EndArray().Take()).Key("labels").BeginArray();
  for (const auto& label : labels_) json.Value(label);
  json.EndArray().Key("words").BeginObject();
  auto say = [&](const char* key, const char* english, const char* zh) {
    json.Field(key, chinese ? zh : english);
  };
  say("event", "event", "事件");
  say("live", "live", "在用");
  say("reserved", "reserved", "保留");
  say("free", "free", "空闲");
  say("used", "in use", "使用中");
  say("pending", "waiting for a stream", "等待其他流");
  say("of_peak", "of the peak", "占峰值");
  say("failed", "The charts could not be drawn:", "无法绘制图表:");
  json.EndObject().EndObject();
  return json.Take();
}

}  // namespace lowtide::report
