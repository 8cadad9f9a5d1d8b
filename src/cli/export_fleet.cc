#include "cli/export_fleet.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "cli/rank_files.h"
#include "cli/ranks_compare.h"

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kCompareEvery = 60;  // seconds

// Seconds since a file (or what a link leads to) was last changed; 0 when that cannot be said.
double AgeOf(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return std::difftime(std::time(nullptr), status.st_mtime);
}

// Size and time of every file that a rank leaves beside its ring: read again only when one has changed.
std::string StampOf(const std::string& folder) {
  std::set<std::string> parts;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with("holders-") && !name.starts_with("findings-")) continue;
    struct stat status {};
    if (::stat(entry.path().c_str(), &status) != 0) continue;
    parts.insert(
        fmt::format("{} {} {}.{};", name, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec));
  }
  std::string stamp;
  for (const std::string& part : parts) stamp += part;
  return stamp;
}

}  // namespace

// Over for long: nothing in it lies in memory still, and nothing was changed lately.
bool Fleet::Old(const std::string& folder) const {
  if (AgeOf(folder) < options_.keep_seconds) return false;
  for (const std::string& ring : record::ListRings(folder)) {
    std::error_code error;
    if (fs::is_symlink(ring, error) || AgeOf(ring) < options_.keep_seconds) return false;
  }
  return true;
}

void Fleet::FindRuns() {
  std::vector<std::pair<double, std::string>> found;  // age, folder
  left_out_ = 0;
  for (const std::string& place : places_) {
    std::error_code error;
    if (!record::ListRings(place).empty()) {
      found.emplace_back(AgeOf(place), fs::weakly_canonical(place, error).string());
      continue;
    }
    for (const auto& entry : fs::directory_iterator(place, error)) {
      std::string folder = entry.path().string();
      if (!entry.is_directory(error) || record::ListRings(folder).empty()) continue;
      if (Old(folder)) {
        ++left_out_;
      } else {
        found.emplace_back(AgeOf(folder), fs::weakly_canonical(folder, error).string());
      }
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::map<std::string, std::unique_ptr<Run>> runs;
  for (auto& [age, folder] : found) {
    if (runs.count(folder)) continue;
    if (runs.size() >= options_.most_runs) {
      ++left_out_;
      continue;
    }
    auto known = runs_.find(folder);
    runs[folder] = known != runs_.end() ? std::move(known->second) : std::make_unique<Run>(folder);
  }
  runs_ = std::move(runs);
  NameRuns();
}

void Fleet::NameRuns() {
  std::map<std::string, int> names;
  for (const auto& [folder, run] : runs_) ++names[fs::path(folder).filename().string()];
  for (auto& [folder, run] : runs_) {
    std::string name = fs::path(folder).filename().string();
    run->label = names[name] > 1 ? folder : name;
  }
}

void Fleet::ReadFiles(const std::string& folder, Run& run) const {
  std::string stamp = StampOf(folder);
  if (stamp == run.stamp) return;
  run.stamp = std::move(stamp);
  run.left = {};
  ReadRankFiles(folder, run.left);
}

// Ranks are compared over all their steps: now and then, and once more when they have ended.
void Fleet::Compare(const std::string& folder, Run& run) const {
  double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  bool last = run.follower.Ended() && !run.compared_ended;
  if (!last && (run.follower.Ended() || (run.compared_at > 0 && now < run.compared_at + kCompareEvery)))
    return;
  auto followed = run.follower.Ranks();
  if (followed.size() < 2) return;
  Ranks together;
  for (const Follower::Followed& rank : followed) {
    if (rank.view.steps > 0) together.tracks.push_back(TrackOf(rank.ring));
  }
  together.facts = ReadFacts(folder);
  together.ended = run.follower.Ended();
  finding::Document document;
  CompareRanks(together, document);
  run.compared = std::move(document.findings);
  run.compared_at = now;
  run.compared_ended = together.ended;
}

report::RunMetrics Fleet::Metrics(const Run& run) const {
  report::RunMetrics out;
  out.run = run.label;
  finding::Document document;
  std::vector<std::vector<verdict::Judgement>> judged;
  std::map<int, size_t> newest;  // rank -> its process that began last
  for (const Follower::Followed& rank : run.follower.Ranks()) {
    out.script = rank.ring.header().script;
    auto [at, fresh] = newest.try_emplace(rank.view.rank, out.ranks.size());
    if (fresh) {
      out.ranks.push_back(RankMetricsOf(rank));
      judged.push_back(rank.judgements);
    } else {
      out.ranks[at->second] = RankMetricsOf(rank);
      judged[at->second] = rank.judgements;
    }
  }
  AddVerdicts(judged, document);
  document.findings.insert(document.findings.end(), run.left.findings.begin(), run.left.findings.end());
  document.findings.insert(document.findings.end(), run.compared.begin(), run.compared.end());
  for (const auto& finding : document.findings)
    ++out.findings[{finding.code, finding::SeverityName(finding.severity)}];
  out.unreadable_files = run.follower.unreadable().size();
  return out;
}

report::FleetMetrics Fleet::Look() {
  auto started = std::chrono::steady_clock::now();
  FindRuns();
  budget_.Begin();
  report::FleetMetrics out;
  for (auto& [folder, run] : runs_) {
    run->follower.Refresh(budget_);
    ReadFiles(folder, *run);
    Compare(folder, *run);
    out.runs.push_back(Metrics(*run));
  }
  out.runs_left_out = left_out_;
  out.look_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return out;
}

std::map<std::string, const Follower*> Fleet::Followers() const {
  std::map<std::string, const Follower*> followers;
  for (const auto& [folder, run] : runs_) followers[run->label] = &run->follower;
  return followers;
}

}  // namespace lowtide::cli
