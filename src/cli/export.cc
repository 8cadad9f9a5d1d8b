#include "cli/export.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/terminal.h"
#include "cli/color.h"
#include "cli/export_fleet.h"
#include "cli/export_http.h"
#include "cli/export_tensorboard.h"
#include "report/openmetrics.h"
#include "report/phrases.h"

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;
using report::Phrase;

constexpr const char* kRuns = "lowtide-runs";

// The state that the server's threads read while the main thread makes the next one.
class Latest {
 public:
  void Set(std::vector<report::MetricFamily> families) {
    std::lock_guard lock(mutex_);
    families_ = std::move(families);
  }
  std::vector<report::MetricFamily> Get() const {
    std::lock_guard lock(mutex_);
    return families_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<report::MetricFamily> families_;
};

// Ctrl-C and SIGTERM are waited for, never handled: no thread is interrupted in its work.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&set_);
    for (int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set_, number);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
  }
  // True when one came within `seconds`.
  bool Wait(double seconds) const {
    timespec time{static_cast<time_t>(seconds), static_cast<long>((seconds - std::floor(seconds)) * 1e9)};
    return ::sigtimedwait(&set_, nullptr, &time) > 0;
  }

 private:
  sigset_t set_;
};

class Exporter {
 public:
  Exporter(const ExportOptions& options, const CommonOptions& common)
      : options_(options),
        terminal_(TerminalFor(STDERR_FILENO, common)),
        words_(common.lang),
        fleet_(Places(options), Limits(options)) {
    if (!options.tensorboard.empty()) tensorboard_ = std::make_unique<TensorBoardExport>(options.tensorboard);
  }

  int Once() {
    report::FleetMetrics fleet = fleet_.Look();
    if (fleet.runs.empty()) {
      throw Error("no recorded run here (no rank*.ring file)",
                  "name the folder that `lowtide run` printed at its start", PlaceNames());
    }
    auto families = report::Families(fleet);
    if (tensorboard_) tensorboard_->Write(fleet_);
    if (!options_.textfile.empty())
      WriteFileAtomically(options_.textfile, report::ToPrometheusText(families));
    if (!options_.textfile.empty() || tensorboard_) return 0;
    fmt::print("{}", options_.format == "openmetrics" ? report::ToOpenMetrics(families)
                                                      : report::ToPrometheusText(families));
    return 0;
  }

  int Serve() {
    EndSignals signals;  // before the server's threads begin: they inherit the mask
    std::unique_ptr<MetricsServer> server;
    if (!options_.listen.empty())
      server = std::make_unique<MetricsServer>(options_.listen, [this] { return latest_.Get(); });
    report::FleetMetrics fleet = Look(true);
    if (server) Say(words_.Say(Phrase::kExportServing, server->url(), fleet.runs.size()));
    if (fleet.runs.empty()) Say(words_.Say(Phrase::kExportWaiting, PlaceNames()));
    while (!signals.Wait(options_.interval)) Look(false);
    if (!options_.textfile.empty()) {
      std::error_code ignored;
      fs::remove(options_.textfile, ignored);  // figures that no one keeps up must not be scraped on
    }
    return 0;
  }

 private:
  static std::vector<std::string> Places(const ExportOptions& options) {
    if (options.places.empty()) return {kRuns};
    for (const std::string& place : options.places) {
      std::error_code error;
      if (!fs::is_directory(place, error))
        throw Error("no such folder", "name run folders, or folders of runs such as lowtide-runs", place);
    }
    return options.places;
  }
  static FleetOptions Limits(const ExportOptions& options) {
    FleetOptions limits;
    if (options.once) limits.keep_seconds = HUGE_VAL;
    return limits;
  }
  std::string PlaceNames() const {
    std::string names;
    for (const std::string& place : options_.places) names += (names.empty() ? "" : ", ") + place;
    return names.empty() ? kRuns : names;
  }

  void Say(const std::string& text) const { PrintError("{} {}\n", terminal_.Bold("lowtide:"), text); }

  // What fails at the first look ends the work; later it is said once, and tried again at the next look.
  report::FleetMetrics Look(bool first) {
    report::FleetMetrics fleet;
    try {
      fleet = fleet_.Look();
      auto families = report::Families(fleet);
      if (!options_.textfile.empty())
        WriteFileAtomically(options_.textfile, report::ToPrometheusText(families));
      latest_.Set(std::move(families));
      if (tensorboard_) tensorboard_->Write(fleet_);
      trouble_.clear();
    } catch (const Error& error) {
      if (first) throw;
      if (trouble_ != error.what()) Say(error.what());
      trouble_ = error.what();
    }
    return fleet;
  }

  const ExportOptions& options_;
  Terminal terminal_;
  report::Words words_;
  Fleet fleet_;
  std::unique_ptr<TensorBoardExport> tensorboard_;
  Latest latest_;
  std::string trouble_;
};

}  // namespace

int Export(const ExportOptions& options, const CommonOptions& common) {
  bool anywhere =
      !options.listen.empty() || !options.textfile.empty() || !options.tensorboard.empty() || options.once;
  if (!anywhere) {
    throw Error("nothing to export to",
                "add --listen HOST:PORT, --textfile FILE, --tensorboard DIR or --once");
  }
  if (options.once && !options.listen.empty())
    throw Error("--once and --listen exclude each other", "leave one of them out");
  Exporter exporter(options, common);
  return options.once ? exporter.Once() : exporter.Serve();
}

}  // namespace lowtide::cli
