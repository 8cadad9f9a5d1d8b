#include "report/phrases.h"

#include <utility>

#include "base/signals.h"
#include "base/units.h"

namespace lowtide::report {

const Translation kTranslations[] = {
#define PHRASE(name, english, chinese) {#name, english, chinese},
#include "report/phrases.inc"
#undef PHRASE
    {nullptr, nullptr, nullptr},
};

namespace {

struct Name {
  std::string_view key;
  Phrase phrase;
};

constexpr Name kPools[] = {{"cpu", Phrase::kPoolCpu},         {"heap", Phrase::kPoolHeap},
                           {"host", Phrase::kPoolHost},       {"workers", Phrase::kPoolWorkers},
                           {"shm", Phrase::kPoolShm},         {"fds", Phrase::kPoolFds}};
constexpr Name kVerdicts[] = {{"leak", Phrase::kLeak},
                              {"capacity", Phrase::kCapacity},
                              {"fragmentation", Phrase::kFragmentation},
                              {"healthy", Phrase::kHealthy},
                              {"insufficient", Phrase::kInsufficient},
                              {"bounded", Phrase::kBounded},
                              {"step_change", Phrase::kStepChange}};
constexpr Name kPhases[] = {{"step", Phrase::kPhaseStep},
                            {"validation", Phrase::kPhaseValidation},
                            {"epoch", Phrase::kPhaseEpoch},
                            {"checkpoint", Phrase::kPhaseCheckpoint},
                            {"other", Phrase::kPhaseOther}};
constexpr Name kRoles[] = {
    {"trainer", Phrase::kTrainer}, {"worker", Phrase::kWorker}, {"launcher", Phrase::kLauncher}};

template <size_t N>
std::string Look(const Words& words, const Name (&names)[N], const std::string& key) {
  for (const Name& name : names) {
    if (name.key == key) return words.Get(name.phrase);
  }
  return key;
}

}  // namespace

const char* Words::Get(Phrase phrase) const {
  const Translation& entry = kTranslations[static_cast<int>(phrase)];
  return chinese_ ? entry.chinese : entry.english;
}

std::string Words::Pool(const std::string& pool) const { return Look(*this, kPools, pool); }
std::string Words::Verdict(const std::string& verdict) const { return Look(*this, kVerdicts, verdict); }
std::string Words::During(const std::string& phase) const { return Look(*this, kPhases, phase); }
std::string Words::Role(const std::string& role) const { return Look(*this, kRoles, role); }

std::string Words::Severity(finding::Severity severity) const {
  switch (severity) {
    case finding::Severity::kError:
      return Get(Phrase::kError);
    case finding::Severity::kWarning:
      return Get(Phrase::kWarning);
    case finding::Severity::kNote:
      break;
  }
  return Get(Phrase::kNote);
}

std::string Words::Ended(const std::string& ended) const {
  for (Phrase phrase : {Phrase::kEndedException, Phrase::kEndedStopped, Phrase::kEndedRunning, Phrase::kEndedSilent}) {
    const Translation& entry = kTranslations[static_cast<int>(phrase)];
    if (chinese_ && ended == entry.english) return entry.chinese;
  }
  if (chinese_ && ended.starts_with("exit ")) return Say(Phrase::kExit, ended.substr(5));
  if (chinese_ && ended.starts_with("ended by SIG")) return Say(Phrase::kEndedSignal, ended.substr(9));
  return ended;
}

std::string Words::ExitCode(int code) const {
  const int signal = code - 128;  // as shells report it
  return signal > 0 && signal < 32 ? Say(Phrase::kSignalled, code, SignalName(signal)) : Say(Phrase::kExit, code);
}

std::string Words::Objects(uint64_t count) const {
  if (count == 0) return "";  // what grows is no object of its own: one that is made anew, a graph
  return Say(count == 1 ? Phrase::kOneObject : Phrase::kObjects, FormatCount(count));
}

std::string Words::OnRanks(const std::vector<int>& ranks) const {
  std::string list;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i;
    while (end + 1 < ranks.size() && ranks[end + 1] <= ranks[end] + 1) ++end;
    list += (list.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (ranks[end] > ranks[i]) list += (ranks[end] == ranks[i] + 1 ? ", " : "-") + std::to_string(ranks[end]);
    i = end + 1;
  }
  return Say(ranks.size() == 1 ? Phrase::kOnRank : Phrase::kOnRanks, list);
}

std::string Words::Duration(double seconds) const {
  static constexpr std::pair<std::string_view, std::string_view> kUnits[] = {
      {" ms", " 毫秒"}, {" min", " 分"}, {" s", " 秒"}, {" h", " 小时"}, {" d", " 天"}};
  std::string text = FormatDuration(seconds);
  if (!chinese_) return text;
  for (const auto& [english, chinese] : kUnits) {
    if (size_t at = text.find(english); at != std::string::npos) text.replace(at, english.size(), chinese);
  }
  return text;
}

std::string Words::Rate(const std::string& pool, double rate, bool plus) const {
  std::string amount = pool == "fds" ? fmt::format("{:.3g}", rate) : FormatBytes(rate);
  return (plus && rate >= 0 ? "+" : "") + Say(Phrase::kPerStep, amount);
}

std::string Words::Rates(const std::string& pool, std::optional<double> least, std::optional<double> most) const {
  if (!least || !most) return "";
  std::string low = Rate(pool, *least, true), high = Rate(pool, *most, true);
  return low == high ? low : Say(Phrase::kBetween, low, high);
}

std::string Words::Amount(const std::string& pool, double amount) {
  return pool == "fds" ? fmt::format("{:.0f}", amount) : FormatBytes(amount);
}

}  // namespace lowtide::report
