#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "snapshot/allocator.h"

namespace lowtide::snapshot {
namespace {

constexpr uint64_t kMiB = 1 << 20;
const char* const kRemedy =
    "settings are those of PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb, expandable_segments, "
    "roundup_power2_divisions, "
    "garbage_collection_threshold, max_non_split_rounding_mb, large_segment_size_mb, "
    "per_process_memory_fraction; and capacity:BYTES";

[[noreturn]] void Bad(std::string_view key, std::string_view value) {
  throw Error(fmt::format("'{}' is not a value of the allocator setting {}", value, key), kRemedy);
}

uint64_t Integer(std::string_view key, std::string_view value) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number > 1 << 30) Bad(key, value);
  return number;
}

double Real(std::string_view key, std::string_view value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(number)) Bad(key, value);
  return number;
}

uint64_t Divisions(std::string_view key, std::string_view value) {
  const uint64_t number = Integer(key, value);
  if (number && !std::has_single_bit(number)) Bad(key, value);
  return number;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\'')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\'')) text.remove_suffix(1);
  return text;
}

// "[256:1,512:2,>:8]": sizes in MiB; an entry holds up to and including its size's interval.
void ApplyDivisions(std::array<uint64_t, 16>& out, std::string_view value) {
  const std::string_view key = "roundup_power2_divisions";
  if (value.empty() || value.front() != '[') {
    out.fill(Divisions(key, value));
    return;
  }
  value.remove_prefix(1);
  if (!value.empty() && value.back() == ']') value.remove_suffix(1);
  size_t from = 0;
  while (!value.empty()) {
    const size_t comma = value.find(',');
    const std::string_view item = value.substr(0, comma);
    value = comma == std::string_view::npos ? std::string_view() : value.substr(comma + 1);
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos) Bad(key, item);
    const std::string_view size = Trim(item.substr(0, colon));
    const uint64_t divisions = Divisions(key, Trim(item.substr(colon + 1)));
    size_t to = 15;
    if (size != ">") {
      const uint64_t mib = Integer(key, size);
      if (!mib || !std::has_single_bit(mib)) Bad(key, item);
      to = std::min<size_t>(15, static_cast<size_t>(std::countr_zero(mib)));
    }
    for (size_t i = from; i <= to; ++i) out[i] = divisions;
    from = to + 1;
  }
}

// Splits at commas outside brackets.
std::vector<std::string_view> SplitConf(std::string_view conf) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= conf.size(); ++i) {
    if (i < conf.size() && conf[i] == '[') ++depth;
    if (i < conf.size() && conf[i] == ']') --depth;
    if (i == conf.size() || (conf[i] == ',' && depth == 0)) {
      if (i > begin) parts.push_back(Trim(conf.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  return parts;
}

}  // namespace

AllocatorConfig AllocatorConfig::Recorded(const Snapshot& snapshot, int device) {
  const AllocatorSettings& settings = snapshot.settings;
  AllocatorConfig config;
  if (settings.max_split_size > 0) config.max_split_size = static_cast<uint64_t>(settings.max_split_size);
  config.garbage_collection_threshold = settings.garbage_collection_threshold;
  config.expandable_segments = settings.expandable_segments;
  for (const auto& [mib, divisions] : settings.roundup_power2_divisions) {
    if (mib && std::has_single_bit(mib) && std::countr_zero(mib) < 16 &&
        (!divisions || std::has_single_bit(divisions))) {
      config.roundup_power2_divisions[static_cast<size_t>(std::countr_zero(mib))] = divisions;
    }
  }
  if (snapshot.family == "torch_npu") config.padding = 32;
  if (settings.present) return config;
  for (const Segment& segment : snapshot.segments)
    config.expandable_segments |= segment.device == device && segment.expandable;
  if (const DeviceTrace* trace = snapshot.TraceOf(device)) {
    for (const Event& event : snapshot.EventsOf(*trace))
      config.expandable_segments |= event.action() == Action::kSegmentMap;
  }
  return config;
}

void AllocatorConfig::Apply(std::string_view conf) {
  for (std::string_view part : SplitConf(conf)) {
    if (part == "defaults") {
      const uint64_t room = capacity, extra = padding;
      *this = AllocatorConfig();
      capacity = room;
      padding = extra;
      continue;
    }
    const size_t colon = part.find_first_of(":=");
    if (colon == std::string_view::npos) throw Error(fmt::format("'{}' is not KEY:VALUE", part), kRemedy);
    const std::string_view key = Trim(part.substr(0, colon)), value = Trim(part.substr(colon + 1));
    if (key == "max_split_size_mb") {
      const uint64_t mib = Integer(key, value);
      if (mib * kMiB < large_segment_size) {
        throw Error(fmt::format("max_split_size_mb:{} is too small: PyTorch wants at least {}", mib,
                                large_segment_size / kMiB),
                    kRemedy);
      }
      max_split_size = mib * kMiB;
    } else if (key == "max_non_split_rounding_mb") {
      max_non_split_rounding = Integer(key, value) * kMiB;
    } else if (key == "large_segment_size_mb") {
      large_segment_size = Integer(key, value) * kMiB;
      if (large_segment_size <= kMiB * 10) Bad(key, value);
    } else if (key == "garbage_collection_threshold") {
      garbage_collection_threshold = Real(key, value);
      if (!(garbage_collection_threshold > 0 && garbage_collection_threshold < 1)) Bad(key, value);
    } else if (key == "expandable_segments") {
      if (value != "True" && value != "False" && value != "true" && value != "false") Bad(key, value);
      expandable_segments = value == "True" || value == "true";
    } else if (key == "roundup_power2_divisions") {
      ApplyDivisions(roundup_power2_divisions, value);
    } else if (key == "capacity") {
      const auto bytes = ParseBytes(value);
      if (!bytes || !*bytes) Bad(key, value);
      capacity = *bytes;
    } else if (key == "per_process_memory_fraction") {
      const double fraction = Real(key, value);
      if (!(fraction > 0 && fraction <= 1)) Bad(key, value);
      if (capacity == kUnlimited)
        throw Error("per_process_memory_fraction needs capacity:BYTES before it", kRemedy);
      limit = static_cast<uint64_t>(fraction * static_cast<double>(capacity));
    } else {
      throw Error(fmt::format("the allocator has no setting '{}' that a replay can follow", key), kRemedy);
    }
  }
}

std::string AllocatorConfig::Text() const {
  std::string text;
  auto add = [&](std::string item) { text += (text.empty() ? "" : ",") + std::move(item); };
  if (expandable_segments) add("expandable_segments:True");
  if (max_split_size != kUnlimited) add(fmt::format("max_split_size_mb:{}", max_split_size / kMiB));
  if (garbage_collection_threshold > 0)
    add(fmt::format("garbage_collection_threshold:{}", garbage_collection_threshold));
  const auto& divisions = roundup_power2_divisions;
  if (std::any_of(divisions.begin(), divisions.end(), [](uint64_t d) { return d > 1; })) {
    if (std::all_of(divisions.begin(), divisions.end(), [&](uint64_t d) { return d == divisions[0]; })) {
      add(fmt::format("roundup_power2_divisions:{}", divisions[0]));
    } else {
      std::string rows;
      for (size_t i = 0; i < divisions.size(); ++i) {
        rows += fmt::format("{}{}:{}", i ? "," : "", i == 15 ? std::string(">") : std::to_string(1u << i),
                            divisions[i]);
      }
      add("roundup_power2_divisions:[" + rows + "]");
    }
  }
  if (max_non_split_rounding != 20 * kMiB)
    add(fmt::format("max_non_split_rounding_mb:{}", max_non_split_rounding / kMiB));
  if (large_segment_size != 20 * kMiB)
    add(fmt::format("large_segment_size_mb:{}", large_segment_size / kMiB));
  return text.empty() ? "defaults" : text;
}

}  // namespace lowtide::snapshot
