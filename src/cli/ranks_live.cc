#include "cli/ranks_live.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/signals.h"
#include "base/terminal.h"
#include "base/units.h"
#include "cli/ranks_compare.h"
#include "cli/ranks_stack.h"

namespace lowtide::cli {
namespace {

constexpr auto kEvery = std::chrono::milliseconds(250);
constexpr double kPatience = 30;        // seconds; LOWTIDE_HANG_SECONDS overrides
constexpr double kUsualSteps = 20;      // and as many usual steps
constexpr double kOutsideTraining = 10; // times longer while a rank validates or saves
constexpr double kStopped = 2;          // seconds in the stopped state
constexpr double kOneAfterAnother = 0.015;  // seconds between two deaths of which the first one caused the second
constexpr int64_t kBringsDown = 60'000'000'000;  // ns within which a rank's exception may end the others
constexpr double kStacksCome = 0.7;     // seconds after they were asked for

double Seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

int64_t MonotonicNow() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// The state letter of a process; 0 when it is gone or only waits to be reaped.
char StateOf(int pid) {
  FILE* stat = std::fopen(fmt::format("/proc/{}/stat", pid).c_str(), "re");
  if (stat == nullptr) return 0;
  char line[512] = {};
  size_t length = std::fread(line, 1, sizeof line - 1, stat);
  std::fclose(stat);
  const char* rest = length > 0 ? std::strrchr(line, ')') : nullptr;
  char state = rest != nullptr && rest[1] == ' ' ? rest[2] : 0;
  return state == 'Z' || state == 'X' ? 0 : state;
}

double UsualStep(const record::Ring& ring) {
  const auto& steps = ring.steps();
  std::vector<double> times;
  for (size_t i = steps.size() > 65 ? steps.size() - 64 : 1; i < steps.size(); ++i) {
    times.push_back(static_cast<double>(steps[i].mono_ns - steps[i - 1].mono_ns) * 1e-9);
  }
  if (times.empty()) return 0;
  auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

template <typename Range>
std::vector<int> Numbers(const Range& ranks) {
  std::vector<int> out;
  for (const auto* rank : ranks) out.push_back(rank->rank);
  return out;
}

}  // namespace

RankWatch::RankWatch(std::string folder, bool alarms, Terminal terminal, std::string lang)
    : folder_(std::move(folder)), lang_(std::move(lang)), alarms_(alarms), terminal_(terminal), patience_(kPatience) {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, HOST_NAME_MAX);
  host_ = std::string(name).substr(0, sizeof(record::FileHeader::hostname) - 1);
  const char* asked = std::getenv("LOWTIDE_HANG_SECONDS");
  double value = asked != nullptr ? std::strtod(asked, nullptr) : 0;
  if (value > 0) patience_ = value;
}

bool RankWatch::Rank::died() const {
  return state == 0 && (ended == record::ExitState::kRunning || IsCrash(signal));
}

void RankWatch::Look(const std::vector<const record::Ring*>& rings) noexcept {
  try {
    size_t exits = exits_.Count();
    if (Clock::now() < next_ && exits == exits_seen_) return;
    exits_seen_ = exits;
    next_ = Clock::now() + kEvery;
    for (const record::Ring* ring : rings) Update(*ring);
    if (ranks_.size() < 2) return;
    Died();
    Stopped();
    Hangs();
  } catch (const std::exception&) {
    // The run goes on; the report at its end compares what the ranks left.
  }
}

void RankWatch::Update(const record::Ring& ring) {
  const record::FileHeader& header = ring.header();
  bool trains = header.rank >= 0 && header.role == record::Role::kTrainer && header.world_size > 1 && !ring.steps().empty();
  if (!trains || host_ != header.hostname) return;
  auto [at, fresh] = ranks_.try_emplace(header.pid);
  Rank& rank = at->second;
  if (fresh) exits_.Watch(header.pid);
  auto now = Clock::now();
  uint64_t step = ring.steps().back().step;
  if (fresh || step != rank.step) rank.progress = now, rank.step = step, rank.usual = UsualStep(ring);
  rank.rank = header.rank, rank.pid = header.pid, rank.ended = header.exit_state;
  rank.ended_ns = header.exit_mono_ns;
  rank.signal = rank.ended == record::ExitState::kSignal ? -header.exit_code : 0;
  rank.training = header.phase == static_cast<uint8_t>(record::Phase::kStep);
  char state = StateOf(header.pid);
  if (state == 'T' && rank.state != 'T') rank.stopped = now;
  rank.state = state;
  const record::Control& control = header.control;
  rank.waited = control.wait_since_ns > 0 ? std::max(0.0, static_cast<double>(MonotonicNow() - control.wait_since_ns) * 1e-9) : 0;
  rank.waits_for.assign(control.wait_name, ::strnlen(control.wait_name, sizeof control.wait_name));
  rank.waits = control.waits;
}

// Whether an exception on another rank brought this one down, some seconds before at most.
bool RankWatch::AfterFailure(const Rank& rank) {
  const auto seen = exits_.Ended(rank.pid);
  const int64_t end = rank.ended_ns != 0 ? rank.ended_ns : seen ? std::chrono::nanoseconds(seen->time_since_epoch()).count() : 0;
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& entry) {
    const Rank& other = entry.second;
    return other.ended == record::ExitState::kException && other.ended_ns < end && end - other.ended_ns < kBringsDown;
  });
}

// The first one that crashes, or goes without a word, while others are there; launchers then end the others.
void RankWatch::Died() {
  if (first_death_told_) return;
  std::vector<const Rank*> dead, alive;
  for (const auto& [pid, rank] : ranks_) {
    if (rank.state != 0) alive.push_back(&rank);
    else if (rank.died() && !AfterFailure(rank)) dead.push_back(&rank);
  }
  if (dead.empty()) return;
  first_death_told_ = true;
  if (alive.empty()) {
    // All are gone by now. The one that went clearly before the next one is it; else the whole job was ended at once.
    std::vector<std::pair<Clock::time_point, const Rank*>> order;
    for (const auto& [pid, rank] : ranks_) {
      if (auto when = exits_.Ended(pid)) order.emplace_back(*when, &rank);
    }
    if (order.size() != ranks_.size()) return;
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    if (!order[0].second->died() || Seconds(order[1].first - order[0].first) < kOneAfterAnother) return;
    dead = {order[0].second};
    for (size_t i = 1; i < order.size(); ++i) alive.push_back(order[i].second);
  }
  for (const Rank* rank : dead) Tell(fmt::format("died {}", rank->rank), DeathFinding({rank->rank, rank->pid, host_, rank->step, rank->signal}, Numbers(alive)));
}

void RankWatch::Stopped() {
  std::vector<const Rank*> others;
  for (const auto& [pid, rank] : ranks_) {
    if (rank.state != 'T' && rank.state != 0) others.push_back(&rank);
  }
  for (const auto& [pid, rank] : ranks_) {
    std::string key = fmt::format("stopped {}", rank.rank);
    if (rank.state != 'T') {
      Over(key);
      continue;
    }
    if (others.empty() || Seconds(Clock::now() - rank.stopped) < kStopped) continue;
    finding::Finding out = RankFinding(
        "LT615", fmt::format("rank {} (pid {} on {}) was stopped by a signal (SIGSTOP or SIGTSTP) after step {}; {} for it", rank.rank, rank.pid, host_, rank.step,
                             RankList(Numbers(others)) + (others.size() == 1 ? " waits" : " wait")),
        fmt::format("rank {}（{} 上的进程 {}）在第 {} 步之后被信号暂停，其他 rank 在等待它", rank.rank, host_, rank.pid, rank.step),
        fmt::format("kill -CONT {} lets it go on, as long as the others' timeout has not passed; then ask who stopped it (a debugger, a job scheduler)", rank.pid),
        fmt::format("在其他 rank 超时之前用 kill -CONT {} 让它继续；再查明是谁暂停了它（调试器、作业调度器）", rank.pid), key);
    out.evidence = {{"step", static_cast<double>(rank.step), ""}};
    Tell(key, std::move(out));
  }
}

void RankWatch::Hangs() {
  double usual = 0, since = 1e300;
  bool training = true;
  std::vector<Rank*> waiting, others;
  for (auto& [pid, rank] : ranks_) {
    bool gone = rank.state == 0;
    if (rank.state == 'T' || (gone && rank.died())) return;  // said otherwise
    if (!gone) {
      since = std::min(since, Seconds(Clock::now() - rank.progress));
      usual = std::max(usual, rank.usual);
      training &= rank.training;
    }
    (rank.waited > 0 && !gone ? waiting : others).push_back(&rank);
  }
  double patience = std::max(patience_, kUsualSteps * usual) * (training ? 1 : kOutsideTraining);
  double longest = 0;
  for (const Rank* rank : waiting) longest = std::max(longest, rank->waited);
  if (waiting.empty() || std::min(since, longest) < patience) {
    if (waiting.empty() || since < patience) Over("hang"), asked_ = {};
    return;
  }
  if (asked_ == Clock::time_point{}) return AskForStacks();
  if (Seconds(Clock::now() - asked_) < kStacksCome || (told_.count("hang") && !told_["hang"].over)) return;
  Tell("hang", HangFinding(waiting, others, longest));
}

void RankWatch::AskForStacks() {
  asked_ = Clock::now();
  auto facts = ReadFacts(folder_);
  for (auto& [pid, rank] : ranks_) {
    auto known = facts.find(rank.rank);
    if (rank.state == 0 || known == facts.end() || known->second.pid != pid) continue;
    rank.stacks_seen = SizeOfStacks(folder_, known->second);
    AskForStack(known->second);
  }
}

std::string RankWatch::StackOf(const Rank& rank, finding::Finding& finding) const {
  auto facts = ReadFacts(folder_);
  auto known = facts.find(rank.rank);
  if (rank.state == 0 || known == facts.end() || known->second.pid != rank.pid) return "";
  StackFrame frame = InnermostFrame(folder_, known->second, rank.stacks_seen);
  if (frame.file.empty()) return "";
  finding.where.push_back({frame.file, frame.line, 0, fmt::format("rank {} in {}", rank.rank, frame.function), {}, {}});
  return fmt::format(" at {}:{} in {}", std::filesystem::path(frame.file).filename().string(), frame.line, frame.function);
}

finding::Finding RankWatch::HangFinding(const std::vector<Rank*>& waiting, const std::vector<Rank*>& others, double seconds) {
  finding::Finding out;
  std::string who, where, key = "hang";
  auto name = [](const Rank& rank) { return rank.waits_for == "gradients" ? std::string("the averaging of gradients in backward()") : rank.waits_for; };
  std::vector<int> culprits;
  for (const Rank* rank : others) {
    culprits.push_back(rank->rank);
    std::string place = StackOf(*rank, out);
    who += fmt::format("; rank {} {} (step {}){}", rank->rank, rank->state == 0 ? "has ended" : "does something else", rank->step, place);
  }
  for (const Rank* rank : waiting) {
    if (waiting.size() > 8 && rank != waiting.front() && rank != waiting.back()) continue;
    where += fmt::format("; rank {} waits in {} (step {}){}", rank->rank, name(*rank), rank->step, StackOf(*rank, out));
  }
  std::string cause;
  if (others.empty()) {
    auto differ = [&](auto field) { return std::any_of(waiting.begin(), waiting.end(), [&](const Rank* rank) { return field(*rank) != field(*waiting[0]); }); };
    bool mixed = differ([](const Rank& rank) { return rank.waits_for; });
    bool ahead = differ([](const Rank& rank) { return rank.waits; });
    cause = mixed   ? "they wait in different collectives, so none will ever meet"
            : ahead ? "some have called a collective that the others have not"
                    : "all wait in the same collective: the network between them is cut, or a rank on another machine does not come";
  } else {
    cause = fmt::format("{} did not come", RankList(culprits));
  }
  std::string message = fmt::format("{} wait{} for {} without a step: {}{}{}", RankList(Numbers(waiting)), waiting.size() == 1 ? "s" : "", FormatDuration(seconds), cause, who, where);
  finding::Finding made = RankFinding(
      "LT614", message, fmt::format("{} 已等待 {} 没有任何进展", RankListZh(Numbers(waiting)), FormatDuration(seconds)),
      others.empty() ? "make every rank call the same collectives in the same order; if they do, look at the network (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, firewall) and at ranks on other machines"
                     : "look at the line where the rank that did not come stands: a branch on the rank, an exception that was swallowed, a lock, a slow disk, a loop that ended early",
      others.empty() ? "让每个 rank 以相同顺序执行相同的集合通信；否则检查网络与其他机器上的 rank" : "查看未到达的 rank 所在的代码行：按 rank 的分支、被吞掉的异常、锁、慢磁盘或提前结束的循环", key);
  made.where = std::move(out.where);
  made.evidence = {{"waited", seconds, "s"}, {"ranks_waiting", static_cast<double>(waiting.size()), ""}};
  return made;
}

void RankWatch::Tell(const std::string& key, finding::Finding finding) {
  auto known = told_.find(key);
  if (known != told_.end() && !known->second.over) return;
  Write(finding);
  if (alarms_) {
    PrintError("{} {} {}\n", terminal_.Red("lowtide:"), finding.code, lang_ == "zh" ? finding.message_zh : finding.message);
  }
  told_[key] = {std::move(finding), Clock::now(), false};
}

// It went on after all: still worth a note.
void RankWatch::Over(const std::string& key) {
  auto known = told_.find(key);
  if (known == told_.end() || known->second.over) return;
  known->second.over = true;
  finding::Finding finding = known->second.finding;
  finding.severity = finding::Severity::kNote;
  double seconds = Seconds(Clock::now() - known->second.since);
  finding.message += fmt::format(" (it went on {} later)", FormatDuration(seconds));
  finding.message_zh += fmt::format("（{} 后恢复）", FormatDuration(seconds));
  Write(finding);
}

void RankWatch::Write(const finding::Finding& finding) const {
  nlohmann::json row = {{"code", finding.code}, {"severity", finding::SeverityName(finding.severity)}, {"message", finding.message},
                        {"message_zh", finding.message_zh}, {"help", finding.help}, {"help_zh", finding.help_zh}, {"fingerprint", finding.fingerprint}};
  for (const auto& where : finding.where) row["where"].push_back({{"file", where.file}, {"line", where.line}, {"object_path", where.object_path}});
  for (const auto& item : finding.evidence) row["evidence"].push_back({{"name", item.name}, {"value", item.value}, {"unit", item.unit}});
  std::string line = row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  int fd = ::open((folder_ + "/findings-observer-" + host_ + ".jsonl").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return;
  [[maybe_unused]] ssize_t written = ::write(fd, line.data(), line.size());
  ::close(fd);
}

}  // namespace lowtide::cli
