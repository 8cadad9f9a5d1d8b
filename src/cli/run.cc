#include "cli/run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/terminal.h"
#include "cli/color.h"
#include "cli/fail_on.h"
#include "cli/judge.h"
#include "cli/launch.h"
#include "cli/observer.h"
#include "cli/rank_files.h"
#include "record/run_folder.h"
#include "report/phrases.h"
#include "report/text.h"

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;
using report::Phrase;
using report::Words;

class Session {
 public:
  Session(const RunOptions& options, const CommonOptions& common)
      : options_(options), terminal_(TerminalFor(STDERR_FILENO, common)), words_(common.lang), lang_(common.lang) {}

  int Run() {
    Launch launch = Prepare();
    if (!folder_.empty() && !options_.quiet) Say(words_.Say(Phrase::kRecording, folder_));
    for (int restarts = 0;; ++restarts) {
      if (restarts > 0) launch.environment.emplace_back("LOWTIDE_ATTEMPT", std::to_string(restarts + 1));
      auto started = std::chrono::steady_clock::now();
      Child child(launch);
      uint64_t steps = Watch(child);
      seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
      if (folder_.empty()) return child.exit_code();
      if (!StartsAgain(child, steps, restarts)) return Finish(child);
    }
  }

 private:
  void Say(const std::string& text) const {
    std::fflush(stdout);
    PrintError("{} {}\n", terminal_.Bold("lowtide:"), text);
  }

  std::string DefaultName() const {
    std::string name = options_.module.empty() ? fs::path(options_.command[0]).stem().string() : options_.module;
    char stamp[32];
    std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
    return fmt::format("lowtide-runs/{}-{}", name, stamp);
  }

  static bool Usable(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    return !error && ::access(folder.c_str(), W_OK | X_OK) == 0;
  }

  // A run is not lost because its record has nowhere to go: another place is tried, and training goes on in any case.
  void ChooseFolder() {
    std::string wanted = options_.folder.empty() ? DefaultName() : options_.folder;
    for (int twin = 2; options_.folder.empty() && fs::exists(wanted) && twin < 1000; ++twin) wanted = fmt::format("{}-{}", DefaultName(), twin);
    bool joins = record::BelongsToOtherHosts(wanted);  // one job over several hosts, with a folder that they share
    if (!options_.force && !joins && !record::ListRings(wanted).empty()) {
      throw Error("holds a recorded run already", "name another folder with -o, or overwrite it with -f", wanted);
    }
    if (Usable(wanted)) {
      for (const std::string& old : joins ? std::vector<std::string>{} : record::ListRings(wanted)) fs::remove(old);
      if (options_.force && !joins) ForgetRankFiles(wanted);
      folder_ = wanted;
      return;
    }
    std::string problem = fmt::format("cannot write into {}", wanted);
    const char* temporary = std::getenv("TMPDIR");
    std::string other = fmt::format("{}/{}-{}", temporary ? temporary : "/tmp", DefaultName(), ::getpid());
    if (Usable(other)) folder_ = other;
    Say(folder_.empty() ? words_.Say(Phrase::kUnrecorded, problem) : words_.Say(Phrase::kElsewhere, problem, other));
  }

  Launch Prepare() {
    std::string python = FindPython(options_.python);
    std::string package = FindPackage(python);
    Launch launch;
    if (!options_.is_command) {
      launch.argv.push_back(python);
      if (!options_.module.empty()) {
        launch.argv.insert(launch.argv.end(), {"-m", options_.module});
      } else if (!fs::exists(options_.command[0])) {
        throw Error("no such script", "check the path; `lowtide run -m MODULE` runs a module, `lowtide run -- COMMAND` any command", options_.command[0]);
      }
    }
    launch.argv.insert(launch.argv.end(), options_.command.begin(), options_.command.end());
    ChooseFolder();
    if (!folder_.empty()) SetEnvironment(launch, package);
    return launch;
  }

  void SetEnvironment(Launch& launch, const std::string& package) const {
    const char* path = std::getenv("PYTHONPATH");
    std::string inject = package + "/_inject";
    launch.environment.emplace_back("PYTHONPATH", path && *path ? inject + ":" + path : inject);
    launch.environment.emplace_back("LOWTIDE_RUN_DIR", fs::absolute(folder_).string());
    if (options_.steps) launch.environment.emplace_back("LOWTIDE_STEPS", std::to_string(options_.steps));
    if (options_.exit_at > 0) launch.environment.emplace_back("LOWTIDE_EXIT_AT", fmt::format("{}", options_.exit_at));
    if (!options_.census) launch.environment.emplace_back("LOWTIDE_CENSUS", "0");
  }

  // With --resume: a script that failed, or was ended before memory ran out, is started again, unless it was asked to end
  // or gets nowhere. What was recorded so far moves to attempt-N in the run's folder.
  bool StartsAgain(const Child& child, uint64_t steps, int restarts) const {
    if (!options_.resume || child.exit_code() == 0 || Child::AskedToEnd() || restarts >= options_.restarts) return false;
    if (steps == 0) {
      Say(words_.Say(Phrase::kNoProgress, child.exit_code()));
      return false;
    }
    std::string kept = fmt::format("{}/attempt-{}", folder_, restarts + 1);
    std::error_code ignored;
    fs::create_directories(kept, ignored);
    record::CollectRings(folder_);
    for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
      if (entry.is_regular_file()) fs::rename(entry.path(), fs::path(kept) / entry.path().filename(), ignored);
    }
    Say(words_.Say(Phrase::kStartsAgain, child.exit_code(), steps, restarts + 1, options_.restarts, kept));
    return true;
  }

  // Returns the steps that the run made.
  uint64_t Watch(Child& child) const {
    ObserverOptions options;
    options.exit_at = options_.exit_at;
    options.judge.capacity = options_.capacity;
    options.census = options_.census;
    options.steps = options_.steps;
    options.alarms = !options_.quiet;
    options.lang = lang_;
    Observer observer(folder_, options, terminal_);
    while (!child.Wait(folder_.empty() ? 200 : observer.SleepMilliseconds())) {
      if (!folder_.empty()) observer.Poll();
    }
    if (!folder_.empty()) observer.Poll();
    return observer.steps();
  }

  int Finish(const Child& child) const {
    std::vector<std::string> lost = record::CollectRings(folder_);
    report::RunView view = View(child);
    for (const std::string& problem : lost) Say(problem);
    try {
      WriteFileAtomically(folder_ + "/findings.json", finding::ToJson(view.document));
    } catch (const Error& error) {
      Say(error.what());
    }
    if (!options_.quiet) PrintError("\n{}", report::ToText(view, terminal_, lang_));
    return options_.fail_on.empty() ? child.exit_code() : FailOn(view.document.findings, options_.fail_on, child.exit_code());
  }

  // A run without any ring (no PyTorch, killed at once) still gets its findings.json.
  report::RunView View(const Child& child) const {
    report::RunView view;
    try {
      view = JudgeFolder(folder_, {options_.capacity});
    } catch (const Error&) {
      view = UnrecordedRun(folder_);
    }
    view.folder_display = folder_;
    view.command.clear();
    for (const std::string& word : options_.command) view.command += (view.command.empty() ? "" : " ") + word;
    if (!options_.module.empty()) view.command = "-m " + options_.module + (view.command.empty() ? "" : " ") + view.command;
    view.exit_code = child.exit_code();
    view.seconds = seconds_;
    return view;
  }

  const RunOptions& options_;
  Terminal terminal_;
  Words words_;
  std::string lang_, folder_;
  double seconds_ = 0;
};

}  // namespace

int Run(const RunOptions& options, const CommonOptions& common) { return Session(options, common).Run(); }

}  // namespace lowtide::cli
