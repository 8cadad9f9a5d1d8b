#include "cli/watch.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "cli/color.h"
#include "cli/follower.h"
#include "cli/judge.h"
#include "cli/screen.h"
#include "report/live.h"
#include "report/phrases.h"

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;
using report::Phrase;

constexpr const char* kRuns = "lowtide-runs";
constexpr int kAllRows = 10'000;

std::string NewestRun() {
  std::error_code error;
  fs::path newest;
  fs::file_time_type newest_time{};
  for (const auto& entry : fs::directory_iterator(kRuns, error)) {
    if (!entry.is_directory(error)) continue;
    auto time = entry.last_write_time(error);
    if (!error && (newest.empty() || time > newest_time)) {
      newest = entry.path();
      newest_time = time;
    }
  }
  if (newest.empty()) {
    throw Error(fmt::format("no recorded run in {}/", kRuns), "name the folder that `lowtide run` printed at its start");
  }
  return newest.string();
}

void Print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) fmt::print("{}\n", line);
  std::fflush(stdout);
}

int Once(const std::string& folder, const WatchOptions& options, const CommonOptions& common) {
  report::RunView view = JudgeFolder(folder, {});
  if (options.format == "json") {
    fmt::print("{}", finding::ToJson(view.document));
  } else {
    Print(report::LiveLines(view, TerminalFor(STDOUT_FILENO, common), common.lang, kAllRows));
  }
  return 0;
}

// A table every few seconds, for logs and pipes.
int Log(const std::string& folder, double interval, const CommonOptions& common) {
  Terminal terminal = TerminalFor(STDOUT_FILENO, common);
  Follower follower(folder, {});
  while (true) {
    Print(report::LiveLines(follower.Look(), terminal, common.lang, kAllRows));
    if (follower.Ended() || std::ferror(stdout)) return 0;
    fmt::print("\n");
    std::this_thread::sleep_for(std::chrono::duration<double>(interval));
  }
}

int Live(const std::string& folder, double interval, const CommonOptions& common) {
  Terminal terminal = TerminalFor(STDOUT_FILENO, common);
  report::Words words(common.lang);
  Follower follower(folder, {});
  report::RunView view = follower.Look();
  {
    Screen screen(STDOUT_FILENO);
    auto event = Screen::Event::kTime;
    while (event != Screen::Event::kQuit && !follower.Ended()) {
      Screen::Size size = screen.size();
      terminal.width = std::max(20, size.columns);
      auto lines = report::LiveLines(view, terminal, common.lang, size.rows - 2);
      lines.insert(lines.end(), {"", terminal.Dim(words.Get(Phrase::kWatchQuit))});
      screen.Draw(lines);
      event = screen.Wait(static_cast<int>(interval * 1000));
      if (event == Screen::Event::kTime) view = follower.Look();
    }
  }
  // The last state stays in the terminal's own lines.
  Print(report::LiveLines(view, terminal, common.lang, kAllRows));
  if (follower.Ended()) fmt::print("{}\n", terminal.Dim(words.Say(Phrase::kWatchEnded, folder)));
  return 0;
}

}  // namespace

int Watch(const WatchOptions& options, const CommonOptions& common) {
  if (options.format == "json" && !options.once) {
    throw Error("--format json needs --once", "add --once, or read the run's rings with `lowtide export`");
  }
  std::string folder = options.folder.empty() ? NewestRun() : options.folder;
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw Error("no such folder", "name the folder that `lowtide run` printed at its start", folder);
  if (options.once) return Once(folder, options, common);
  bool terminal = ::isatty(STDOUT_FILENO);
  double interval = options.interval > 0 ? std::clamp(options.interval, 0.05, 86400.0) : terminal ? 1 : 10;
  return terminal ? Live(folder, interval, common) : Log(folder, interval, common);
}

}  // namespace lowtide::cli
