#include "cli/rank_view.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/signals.h"

namespace lowtide::cli {
namespace {

constexpr size_t kMostPhases = 400;

std::string Ended(const record::Ring& ring) {
  const record::FileHeader& header = ring.header();
  switch (header.exit_state) {
    case record::ExitState::kClean:
      return fmt::format("exit {}", header.exit_code);
    case record::ExitState::kException:
      return "ended by an exception";
    case record::ExitState::kStopped:
      return "stopped by lowtide after the steps asked for";
    case record::ExitState::kSignal:
      return "ended by " + SignalName(-header.exit_code);
    case record::ExitState::kRunning:
      break;
  }
  return ring.WriterAlive() ? "still running" : "ended without a word (killed, or os._exit)";
}

const char* PhaseName(record::MarkKind kind) {
  if (kind == record::MarkKind::kValidation) return "validation";
  return kind == record::MarkKind::kCheckpoint ? "checkpoint" : nullptr;
}

// Validations and checkpoints from their marks: begin to end, a point where only one is known. The newest ones if many.
std::vector<report::PhaseSpan> Phases(const record::Ring& ring) {
  std::vector<report::PhaseSpan> spans;
  for (const record::MarkRecord& mark : ring.marks()) {
    const char* name = PhaseName(mark.kind);
    if (!name) continue;
    bool closes = mark.edge == record::MarkEdge::kEnd && !spans.empty() && spans.back().phase == name;
    if (closes) {
      spans.back().last_step = mark.step;
    } else {
      spans.push_back({name, mark.step, mark.step});
    }
  }
  if (spans.size() > kMostPhases) spans.erase(spans.begin(), spans.end() - kMostPhases);
  return spans;
}

}  // namespace

report::RankView RankViewOf(const record::Ring& ring) {
  const record::FileHeader& header = ring.header();
  report::RankView view;
  view.rank = std::max(header.rank, 0);
  view.role = header.role == record::Role::kWorker     ? "worker"
              : header.role == record::Role::kLauncher ? "launcher"
                                                       : "trainer";
  view.pid = header.pid;
  view.host = header.hostname;
  view.steps = ring.steps().empty() ? 0 : ring.steps().back().step;
  int64_t end = header.exit_mono_ns > 0  ? header.exit_mono_ns
                : ring.steps().empty() ? header.start_mono_ns
                                         : ring.steps().back().mono_ns;
  view.seconds = static_cast<double>(end - header.start_mono_ns) * 1e-9;
  view.ended = Ended(ring);
  view.lost = ring.loss().torn;
  view.phases = Phases(ring);
  return view;
}

}  // namespace lowtide::cli
