#include "cli/snapshot.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/terminal.h"
#include "cli/color.h"
#include "cli/fail_on.h"
#include "report/snapshot_report.h"
#include "snapshot/compare.h"
#include "snapshot/explain.h"
#include "snapshot/reader.h"

namespace lowtide::cli {
namespace {

snapshot::Explanation ExplainFile(const std::string& path, const SnapshotOptions& options) {
  snapshot::ExplainOptions how;
  if (options.capacity) how.capacity = options.capacity;
  how.replay = options.replay;
  return snapshot::Explain(snapshot::ReadSnapshot(path, {options.threads}), how);
}

void NumberRanks(std::vector<snapshot::Explanation>& files) {
  std::set<int> taken;
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].rank = snapshot::RankOfFile(files[i].snapshot->file, static_cast<int>(i));
    taken.insert(files[i].rank);
  }
  if (taken.size() == files.size()) return;
  for (size_t i = 0; i < files.size(); ++i) files[i].rank = static_cast<int>(i);
}

std::string Render(const report::SnapshotView& view, const SnapshotOptions& options,
                   const CommonOptions& common) {
  report::SnapshotOptions how;
  how.lang = common.lang;
  how.hide_sources = options.hide_sources;
  if (options.format == "json") return report::SnapshotToJson(view, how);
  if (options.format == "html") return report::SnapshotToHtml(view, how);
  if (options.format == "speedscope") return report::SnapshotToSpeedscope(view, how);
  if (options.format == "trace") return report::SnapshotToTrace(view, how);
  CommonOptions plain = common;
  if (!options.output.empty() && common.color == "auto") plain.color = "never";
  return report::SnapshotToText(view, TerminalFor(STDOUT_FILENO, plain), how);
}

}  // namespace

int Snapshot(const SnapshotOptions& options, const CommonOptions& common) {
  // A setting that is not known should fail before a large file is read.
  if (!options.replay.empty() && options.replay != "best") snapshot::AllocatorConfig().Apply(options.replay);
  std::vector<snapshot::Explanation> files;
  for (const std::string& path : options.files) files.push_back(ExplainFile(path, options));
  report::SnapshotView view{files, nullptr, options.diff, nullptr, {}};
  std::optional<snapshot::Ranks> ranks;
  if (files.size() > 1) {
    NumberRanks(files);
    ranks = snapshot::JoinRanks(files);
    view.ranks = &*ranks;
    view.findings = snapshot::FindRankProblems(*ranks);
  }
  for (const auto& file : files)
    view.findings.insert(view.findings.end(), file.findings.begin(), file.findings.end());
  std::optional<std::vector<snapshot::DeviceDiff>> diff;
  if (!options.diff.empty()) {
    snapshot::Explanation before = ExplainFile(options.diff, options);
    diff = snapshot::Compare(before, files.front());
    view.diff = &*diff;
  }
  const std::string text = Render(view, options, common);
  if (options.output.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) != 0)
      throw Error("the report could not be written", "look for a full disk or a closed pipe");
  } else {
    WriteFileAtomically(options.output, text);
    PrintError("wrote {}\n", options.output);
  }
  return FailOn(view.findings, options.fail_on, 0);
}

}  // namespace lowtide::cli
