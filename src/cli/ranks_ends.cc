// How ranks ended: LT616, a rank that died while others were there.
#include <fmt/core.h>

#include <algorithm>
#include <csignal>

#include "base/signals.h"
#include "cli/ranks_compare.h"

namespace lowtide::cli {
namespace {

using End = RankTrack::End;

bool Crashed(const RankTrack& track) { return track.end == End::kSignal && IsCrash(track.signal); }
bool Failed(const RankTrack& track) { return track.end == End::kException || Crashed(track); }

// What a rank's failure does to the others comes after it: a lost connection, std::terminate in a thread of NCCL. The
// latter is how failures spread; any other crash is its own on a host where nothing failed before.
bool First(const RankTrack& track, const Ranks& ranks) {
  return std::none_of(ranks.tracks.begin(), ranks.tracks.end(), [&](const RankTrack& other) {
    const bool spreads = other.host == track.host || track.signal == SIGABRT || !Crashed(track);
    return Failed(other) && spreads && other.end_ns < track.end_ns;
  });
}

// Those that left no word; if all did, those that crashed and were the first to; else the one rank that somebody asked to
// end before any other failed.
std::vector<const RankTrack*> Dead(const Ranks& ranks) {
  std::vector<const RankTrack*> silent, crashed, asked;
  for (const RankTrack& track : ranks.tracks) {
    if (track.end == End::kWithoutWord) silent.push_back(&track);
    if (Crashed(track) && First(track, ranks)) crashed.push_back(&track);
    if (track.end == End::kSignal && !Crashed(track) && First(track, ranks)) asked.push_back(&track);
  }
  const bool failure = std::any_of(ranks.tracks.begin(), ranks.tracks.end(), Failed);
  if (asked.size() != 1 || !failure) asked.clear();  // else the whole job was
  return !silent.empty() ? silent : !crashed.empty() ? crashed : asked;
}

struct Words {
  std::string how, how_zh, help, help_zh;
};

Words WordsOf(int signal) {
  const std::string name = signal != 0 ? SignalName(signal) : "";
  if (signal == 0) {
    return {"ended without a word", "突然终止",
            "look for the kernel's word (dmesg | grep -i 'killed process'), the job scheduler's, and a core dump; `lowtide report` shows this rank's memory up to its end",
            "查看内核日志（dmesg | grep -i 'killed process'）、作业调度器日志与核心转储；`lowtide report` 会显示该 rank 终止前的内存"};
  }
  if (IsCrash(signal)) {
    return {fmt::format("crashed in native code ({})", name), fmt::format("在本地代码中崩溃（{}）", name),
            "PYTHONFAULTHANDLER=1 prints the Python line of the crash, a core dump (coredumpctl gdb) the native one; with CUDA also CUDA_LAUNCH_BLOCKING=1",
            "设置 PYTHONFAULTHANDLER=1 可打印崩溃处的 Python 行，核心转储（coredumpctl gdb）给出本地代码位置；使用 CUDA 时再加 CUDA_LAUNCH_BLOCKING=1"};
  }
  return {fmt::format("was ended by {}", name), fmt::format("被信号 {} 终止", name),
          "somebody asked this one process to end: the job scheduler, a guard against low memory (earlyoom, systemd-oomd), or a person; look at their logs",
          "有人只终止了这一个进程：作业调度器、内存保护程序（earlyoom、systemd-oomd）或人为操作；请查看它们的日志"};
}

}  // namespace

finding::Finding DeathFinding(const Death& death, const std::vector<int>& others) {
  const Words words = WordsOf(death.signal);
  const bool silent = death.signal == 0;
  finding::Finding out = RankFinding(
      "LT616",
      fmt::format("rank {} (pid {} on {}) {} after step {}, while {} {} still there{}", death.rank, death.pid, death.host, words.how, death.step, RankList(others),
                  others.size() == 1 ? "was" : "were", silent ? ": it was killed (out of memory, kill -9), crashed in native code, or called os._exit" : ""),
      fmt::format("rank {}（{} 上的进程 {}）在第 {} 步之后{}，而其他 rank 仍在运行{}", death.rank, death.host, death.pid, death.step, words.how_zh,
                  silent ? "：可能被杀死（内存不足、kill -9）、在本地代码中崩溃或调用了 os._exit" : ""),
      words.help, words.help_zh, fmt::format("died {}", death.rank));
  out.evidence = {{"last_step", static_cast<double>(death.step), ""}};
  return out;
}

// After the fact. A launcher's SIGTERM to the ranks that are left is their word.
void CompareEnds(const Ranks& ranks, finding::Document& document) {
  std::vector<const RankTrack*> dead = Dead(ranks);
  std::vector<int> others;
  for (const RankTrack& track : ranks.tracks) {
    if (std::find(dead.begin(), dead.end(), &track) == dead.end()) others.push_back(track.rank);
  }
  bool told = std::any_of(document.findings.begin(), document.findings.end(), [](const finding::Finding& f) { return f.code == "LT616"; });
  if (told || others.empty()) return;
  for (const RankTrack* track : dead) {
    document.findings.push_back(DeathFinding({track->rank, track->pid, track->host, track->last_step, track->signal}, others));
  }
}

}  // namespace lowtide::cli
