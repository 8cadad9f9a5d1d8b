#include "verdict/judgement.h"

#include <fmt/core.h>

#include <cmath>

#include "verdict/kinds/kinds.h"

namespace lowtide::verdict {

const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kLeak:
      return "leak";
    case Kind::kBounded:
      return "bounded";
    case Kind::kCapacity:
      return "capacity";
    case Kind::kFragmentation:
      return "fragmentation";
    case Kind::kStepChange:
      return "step_change";
    case Kind::kHealthy:
      return "healthy";
    case Kind::kInsufficient:
      break;
  }
  return "insufficient";
}

const char* StateName(State state) {
  switch (state) {
    case State::kTooShort:
      return "too_short";
    case State::kSteady:
      return "steady";
    case State::kSuspect:
      return "suspect";
    case State::kLeak:
      return "leak";
    case State::kWarmup:
      return "warmup";
    case State::kStep:
      return "step";
    case State::kBounded:
      return "bounded";
    case State::kReclaimed:
      return "reclaimed";
    case State::kRisingInRange:
      break;
  }
  return "rising_in_range";
}

namespace {

// One explicit line per kind.
Words WordsOf(const Judgement& j) {
  switch (j.kind) {
    case Kind::kLeak:
      return LeakWords(j);
    case Kind::kBounded:
      return BoundedWords(j);
    case Kind::kCapacity:
      return CapacityWords(j);
    case Kind::kFragmentation:
      return FragmentationWords(j);
    case Kind::kStepChange:
      return StepChangeWords(j);
    case Kind::kHealthy:
      return HealthyWords(j);
    case Kind::kInsufficient:
      break;
  }
  return InsufficientWords(j);
}

std::string Capitalized(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

void AddEvidence(std::vector<finding::Evidence>& out, const char* name, std::optional<double> value,
                 const char* unit) {
  if (value) out.push_back({name, *value, unit});
}

}  // namespace

std::string Reason(const Judgement& j) {
  return Capitalized(WordsOf(j).reason.en + (j.note.empty() ? "" : " " + j.note));
}
std::string ReasonZh(const Judgement& j) { return WordsOf(j).reason.zh + j.note_zh; }
std::string Help(const Judgement& j) { return WordsOf(j).help.en; }
std::string HelpZh(const Judgement& j) { return WordsOf(j).help.zh; }

finding::VerdictRow ToRow(const Judgement& j) {
  finding::VerdictRow row;
  row.pool = j.pool, row.rank = j.rank, row.verdict = KindName(j.kind), row.state = StateName(j.state);
  row.watch = j.watch, row.alarm = j.alarm, row.confidence = j.confidence;
  row.bytes_per_step = j.bytes_per_step, row.interval = j.interval;
  if (j.onset_step && *j.onset_step >= 0) row.onset_step = static_cast<uint64_t>(*j.onset_step);
  if (j.phase) row.phase = series::PhaseName(*j.phase);
  row.steps_to_oom = j.steps_to_oom, row.seconds_to_oom = j.seconds_to_oom;
  row.steps_seen = j.steps_seen;
  if (j.steps_needed) row.steps_needed = static_cast<uint64_t>(std::max(1.0, std::ceil(*j.steps_needed)));
  row.reason = Reason(j), row.reason_zh = ReasonZh(j);
  return row;
}

std::optional<finding::Finding> ToFinding(const Judgement& j) {
  Words words = WordsOf(j);
  if (!words.code) return std::nullopt;
  finding::Finding out;
  out.code = words.code, out.severity = words.severity;
  out.message = Reason(j), out.message_zh = ReasonZh(j);
  out.help = words.help.en, out.help_zh = words.help.zh;
  finding::Where where;
  where.first_step = static_cast<uint64_t>(std::max(0.0, j.onset_step.value_or(j.first_step)));
  where.last_step = static_cast<uint64_t>(std::max(0.0, j.last_step));
  out.where.push_back(where);
  bool counts = j.pool == "fds";
  AddEvidence(out.evidence, "growth", j.bytes_per_step, counts ? "1/step" : "B/step");
  if (j.interval) {
    AddEvidence(out.evidence, "growth_low", j.interval->first, counts ? "1/step" : "B/step");
    AddEvidence(out.evidence, "growth_high", j.interval->second, counts ? "1/step" : "B/step");
  }
  AddEvidence(out.evidence, "confidence", j.confidence, "");
  AddEvidence(out.evidence, "steps_to_oom", j.steps_to_oom, "steps");
  AddEvidence(out.evidence, "seconds_to_oom", j.seconds_to_oom, "s");
  AddEvidence(out.evidence, "peak", j.peak, counts ? "" : "B");
  AddEvidence(out.evidence, "capacity", j.capacity, counts ? "" : "B");
  AddEvidence(out.evidence, "steps_seen", static_cast<double>(j.steps_seen), "steps");
  if (j.gap) {
    AddEvidence(out.evidence, "reserved", j.gap->reserved, "B");
    AddEvidence(out.evidence, "gap_growth", j.gap->growth, "B");
  }
  AddEvidence(out.evidence, "level_change", j.step_change_bytes, counts ? "" : "B");
  out.fingerprint = finding::Fingerprint(out.code, {j.pool, std::to_string(j.rank), KindName(j.kind)});
  return out;
}

}  // namespace lowtide::verdict
