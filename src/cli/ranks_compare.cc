#include "cli/ranks_compare.h"

#include <fmt/core.h>

#include <algorithm>

#include "finding/catalogue.h"

namespace lowtide::cli {
namespace {

using Compare = void (*)(const Ranks&, finding::Document&);

constexpr Compare kComparisons[] = {
    &CompareSamplers, &CompareRows,   &CompareBatches,     &CompareParameters, &CompareUnused,
    &CompareDevices,  &CompareBuffers, &CompareCollectives, &CompareEnds,       &CompareTimes,
    &CompareMemory,
};

std::string Listed(std::vector<int>& ranks) {
  std::sort(ranks.begin(), ranks.end());
  size_t count = ranks.size();
  if (count > 3 && ranks.back() - ranks.front() == static_cast<int>(count) - 1) {
    return fmt::format("{} to {}", ranks.front(), ranks.back());
  }
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(count, 8); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  if (count > 8) text += fmt::format(" and {} more", count - 8);
  return text;
}

void AddPools(const record::Ring& ring, RankTrack& track) {
  double floor = 0, most = 0;
  const auto& steps = ring.steps();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].cpu_bytes == record::kAbsent) continue;
    double bytes = static_cast<double>(steps[i].cpu_bytes);
    double peak = std::max(bytes, static_cast<double>(steps[i].cpu_peak_bytes));
    most = std::max(most, peak);
    if (i >= steps.size() / 2) floor = floor > 0 ? std::min(floor, bytes) : bytes;
  }
  if (most > 0) track.peak["cpu"] = most;
  if (floor > 0) track.floor["cpu"] = floor;
  size_t half = ring.devices().size() / 2, number = 0;
  for (const record::DeviceRecord& device : ring.devices()) {
    if (++number, device.allocated_bytes == record::kAbsent) continue;
    std::string pool = record::DeviceName(device.type, device.index);
    pool = pool.substr(0, pool.find(':'));
    double bytes = static_cast<double>(device.allocated_bytes);
    track.peak[pool] = std::max({track.peak[pool], bytes, static_cast<double>(device.peak_bytes)});
    if (number <= half) continue;
    auto [at, fresh] = track.floor.try_emplace(pool, bytes);
    if (!fresh) at->second = std::min(at->second, bytes);
  }
  for (const record::DeviceEntry& entry : ring.header().devices) {
    if (!entry.used || entry.capacity_bytes <= 0) continue;
    std::string pool = record::DeviceName(entry.type, entry.index);
    track.capacity[pool.substr(0, pool.find(':'))] = static_cast<double>(entry.capacity_bytes);
  }
}

}  // namespace

RankTrack TrackOf(const record::Ring& ring) {
  RankTrack track;
  track.rank = std::max(ring.header().rank, 0);
  track.host = ring.header().hostname;
  const record::StepRecord* before = nullptr;
  track.steps.reserve(ring.steps().size());
  for (const record::StepRecord& record : ring.steps()) {
    if (before && record.step == before->step + 1) {
      RankTrack::Step step;
      step.number = record.step;
      step.seconds = static_cast<double>(record.mono_ns - before->mono_ns) * 1e-9;
      step.data = record.data_wait_us * 1e-6;
      step.collective = record.collective_wait_us * 1e-6;
      step.training = record.phase == record::Phase::kStep;
      track.steps.push_back(step);
    }
    before = &record;
  }
  AddPools(ring, track);
  const record::FileHeader& header = ring.header();
  track.pid = header.pid;
  track.last_step = ring.steps().empty() ? 0 : ring.steps().back().step;
  using End = RankTrack::End;
  track.signal = header.exit_state == record::ExitState::kSignal ? -header.exit_code : 0;
  track.end_ns = header.exit_mono_ns == 0 ? 0 : header.start_wall_ns + header.exit_mono_ns - header.start_mono_ns;
  track.end = header.exit_state == record::ExitState::kException ? End::kException
              : track.signal != 0                                ? End::kSignal
              : header.exit_state != record::ExitState::kRunning ? End::kInOrder
              : ring.WriterAlive()                               ? End::kRunning
                                                                 : End::kWithoutWord;
  return track;
}

std::string RankList(std::vector<int> ranks) { return (ranks.size() == 1 ? "rank " : "ranks ") + Listed(ranks); }
std::string RankListZh(std::vector<int> ranks) { return "rank " + Listed(ranks); }

finding::Finding RankFinding(const char* code, std::string message, std::string message_zh, std::string help,
                             std::string help_zh, const std::string& cause) {
  finding::Finding out;
  out.code = code;
  out.severity = finding::FindCode(code)->severity;
  out.message = std::move(message);
  out.message_zh = std::move(message_zh);
  out.help = std::move(help);
  out.help_zh = std::move(help_zh);
  out.fingerprint = finding::Fingerprint(code, {cause});
  return out;
}

void CompareRanks(const Ranks& ranks, finding::Document& document) {
  if (ranks.facts.size() < 2 && ranks.tracks.size() < 2) return;
  for (Compare compare : kComparisons) compare(ranks, document);
}

}  // namespace lowtide::cli
