// A run folder judged as a whole: every rank's ring, what the ranks left beside them, and what was lost.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/units.h"
#include "cli/iterations.h"
#include "cli/judge.h"
#include "cli/leak_holders.h"
#include "cli/rank_files.h"
#include "cli/ranks_compare.h"
#include "cli/rank_view.h"
#include "finding/catalogue.h"
#include "record/run_folder.h"

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;
using finding::Finding;
using verdict::Judgement;
using verdict::Kind;

// Below this many steps resident memory alone proves no leak: holes in the C heap make it creep in healthy programs.
constexpr uint64_t kHostProofSteps = 2000;
constexpr double kHostProofBytes = 64e6;
constexpr size_t kRingsPerThread = 8;

double RateOf(const Judgement& judgement) { return judgement.bytes_per_step.value_or(0); }

const Judgement* Leaking(const std::vector<Judgement>& all, const char* pool) {
  for (const Judgement& judgement : all) {
    if (judgement.pool == pool && judgement.kind == Kind::kLeak) return &judgement;
  }
  return nullptr;
}

void DoubtHost(Judgement& host) {
  bool proven = host.steps_seen >= kHostProofSteps && host.grown >= kHostProofBytes;
  if (host.kind != Kind::kLeak || proven) return;
  host.kind = Kind::kInsufficient;
  host.alarm = false;
  if (host.steps_seen < kHostProofSteps) host.steps_needed = static_cast<double>(kHostProofSteps - host.steps_seen);
  host.note = "Neither tensors nor the C heap grow, and resident memory alone creeps in healthy programs too.";
  host.note_zh = "张量和 C 堆都没有增长，而常驻内存在健康的程序中也会缓慢上升。";
}

Finding ToolFinding(const char* code, const std::string& file, std::string message, std::string message_zh,
                    std::string help, std::string help_zh) {
  Finding out;
  out.code = code;
  out.severity = finding::FindCode(code)->severity;
  out.message = std::move(message);
  out.message_zh = std::move(message_zh);
  out.help = std::move(help);
  out.help_zh = std::move(help_zh);
  if (!file.empty()) out.where.push_back({file, 0, 0, "", {}, {}});
  out.fingerprint = finding::Fingerprint(code, {std::filesystem::path(file).filename().string()});
  return out;
}

void AddLosses(const record::Ring& ring, finding::Document& document) {
  if (ring.loss().torn) {
    document.findings.push_back(ToolFinding(
        "LT902", ring.path(), fmt::format("{} records of {} are torn and were left out", ring.loss().torn, ring.path()),
        fmt::format("{} 中有 {} 条记录不完整，已略去", ring.path(), ring.loss().torn),
        "the verdicts rest on the records that are whole", "结论只依据完整的记录"));
  }
  if (ring.loss().cut) {
    document.findings.push_back(ToolFinding("LT903", ring.path(), fmt::format("{} is cut short; what is whole was read", ring.path()),
                                            fmt::format("{} 被截断；已读取其中完整的部分", ring.path()),
                                            "copy the file again if the original is longer", "如果原文件更长，请重新复制"));
  }
}

void AddBlindSpots(const record::Ring& ring, finding::Document& document) {
  const record::FileHeader& header = ring.header();
  if (header.capabilities & record::kCapAllocCpu || header.torch_version[0] == 0) return;
  if (header.python_version[0] == 0) return;  // a C++ program's own marks never count them
  document.findings.push_back(ToolFinding(
      "LT904", ring.path(),
      fmt::format("CPU tensor bytes of rank {} were not counted: PyTorch {} has no slot to count at", std::max(header.rank, 0), header.torch_version),
      fmt::format("未统计进程 {} 的 CPU 张量字节：PyTorch {} 没有可供统计的入口", std::max(header.rank, 0), header.torch_version),
      "`lowtide doctor` shows what can be watched; the C heap's figures stand in", "`lowtide doctor` 会列出可监测的内容；此处以 C 堆的数字代替"));
}

// A pool that leaks on some ranks and not on others says where to look.
void NameRanks(std::vector<std::vector<Judgement>>& ranks) {
  std::map<std::string, std::set<int>> leaking, watched;
  // Each rank has its own device: cuda:0 of rank 0 is compared with cuda:1 of rank 1.
  auto kind = [](const Judgement& judgement) { return judgement.pool.substr(0, judgement.pool.find(':')); };
  for (const auto& judgements : ranks) {
    for (const Judgement& judgement : judgements) {
      watched[kind(judgement)].insert(judgement.rank);
      if (judgement.kind == Kind::kLeak) leaking[kind(judgement)].insert(judgement.rank);
    }
  }
  for (auto& judgements : ranks) {
    for (Judgement& judgement : judgements) {
      const auto &some = leaking[kind(judgement)], &all = watched[kind(judgement)];
      judgement.ranks = static_cast<int>(all.size());
      if (judgement.kind == Kind::kLeak && some.size() < all.size()) {
        judgement.only_ranks.assign(some.begin(), some.end());
      }
    }
  }
}

void AddRank(std::vector<Judgement>& judgements, finding::Document& document) {
  std::vector<size_t> cause = Reconcile(judgements);
  for (size_t i = 0; i < judgements.size(); ++i) {
    finding::VerdictRow row = verdict::ToRow(judgements[i]);
    auto found = verdict::ToFinding(judgements[i]);
    if (cause[i] != i) {
      row.explained_by = judgements[cause[i]].pool;
    } else if (found) {
      row.fingerprint = found->fingerprint;
      document.findings.push_back(std::move(*found));
    }
    document.verdicts.push_back(std::move(row));
  }
}

// `steps` 0: nothing that is a step was seen in any process.
void AddSilence(const report::RunView& view, finding::Document& document) {
  for (const report::RankView& rank : view.ranks) {
    if (rank.steps > 0 || rank.ended == "still running") return;
  }
  document.findings.push_back(ToolFinding(
      "LT901", "", "no training step was seen: the script ended before its first step, or trains in a way that no hook sees",
      "没有看到任何训练步：脚本在第一步之前就结束了，或者其训练方式没有钩子能察觉",
      "call lowtide.step() at the end of each step; `lowtide doctor` shows what can be watched here",
      "在每一步结束时调用 lowtide.step()；`lowtide doctor` 会列出此处可监测的内容"));
}

// One ring, judged by itself.
struct JudgedRing {
  report::RankView rank;
  std::string script;
  std::vector<Finding> findings;
  std::vector<Judgement> judgements;
  std::vector<report::SeriesView> series;
  RankTrack track;
  Iterations iterations;
  bool shown = false;  // a process that trained, or should have
  bool ended = true;
};

JudgedRing JudgeRing(const std::string& file, const JudgeOptions& options) {
  JudgedRing out;
  std::optional<record::Ring> ring;
  try {
    ring.emplace(record::Ring::Open(file));
  } catch (const Error& error) {
    out.findings.push_back(ToolFinding("LT903", file, error.message(), error.message(), error.remedy(), error.remedy()));
    return out;
  }
  out.rank = RankViewOf(*ring);
  out.script = ring->header().script;
  finding::Document document;
  AddLosses(*ring, document);
  out.shown = out.rank.role == "trainer" || out.rank.steps > 0;
  if (out.rank.steps > 0) {
    AddBlindSpots(*ring, document);
    out.ended = !ring->WriterAlive();
    RankJudge judge(options);
    judge.Update(*ring);
    out.judgements = judge.Judge(out.ended);
    out.series = judge.Series();
    out.track = TrackOf(*ring);
    out.iterations = IterationsOf(*ring);
    for (Judgement& judgement : out.judgements) CountInIterations(out.iterations, judgement);
    for (report::SeriesView& series : out.series) CountInIterations(out.iterations, series);
    CountInIterations(out.iterations, out.rank);
  }
  out.findings = std::move(document.findings);
  return out;
}

// Rings are independent of each other: some are judged at the same time, in the order of `files`.
std::vector<JudgedRing> JudgeRings(const std::vector<std::string>& files, const JudgeOptions& options) {
  std::vector<JudgedRing> judged(files.size());
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex lock;
  auto work = [&] {
    for (size_t i = next++; i < files.size(); i = next++) {
      try {
        judged[i] = JudgeRing(files[i], options);
      } catch (...) {
        std::lock_guard guard(lock);
        failure = std::current_exception();
        return;
      }
    }
  };
  std::vector<std::thread> helpers;
  size_t threads = std::min<size_t>({std::thread::hardware_concurrency(), 8, files.size() / kRingsPerThread});
  for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
  return judged;
}

}  // namespace

std::vector<size_t> Reconcile(std::vector<Judgement>& judgements) {
  const Judgement *cpu = Leaking(judgements, "cpu"), *heap = Leaking(judgements, "heap"), *shm = Leaking(judgements, "shm");
  // Graph nodes live in the C heap and hold few tensor bytes: the pool with the substance is the cause.
  const Judgement* inner = cpu && (!heap || RateOf(*cpu) >= 0.3 * RateOf(*heap)) ? cpu : heap ? heap : shm;
  std::vector<size_t> cause(judgements.size());
  for (size_t i = 0; i < judgements.size(); ++i) {
    Judgement& judgement = judgements[i];
    cause[i] = i;
    if (judgement.pool == "host" && !inner) DoubtHost(judgement);
    if (judgement.pool == "host" && inner) judgement.no_leak_above.reset();  // a leak that goes into free pages as yet
    if (judgement.kind != Kind::kLeak) continue;
    const Judgement* by = judgement.pool == "fds" ? shm
                          : judgement.pool == "cpu" || judgement.pool == "heap" || judgement.pool == "host" ? inner
                                                                                                            : nullptr;
    if (by) cause[i] = static_cast<size_t>(by - judgements.data());
  }
  return cause;
}

void AddVerdicts(std::vector<std::vector<Judgement>>& ranks, finding::Document& document) {
  NameRanks(ranks);
  for (auto& judgements : ranks) AddRank(judgements, document);
}

namespace {

// Rings that still lie in the memory of other hosts: their runs have not ended, or ended with the host. One finding a host,
// and what can be read here is left in `files`.
void SetAsideOthers(std::vector<std::string>& files, finding::Document& document) {
  std::map<std::string, std::vector<std::string>> away;
  std::erase_if(files, [&](const std::string& file) {
    std::error_code error;
    if (!fs::is_symlink(file, error) || fs::exists(file, error)) return false;
    std::string host = record::OtherHostOf(fs::read_symlink(file, error).string());
    host = host.substr(0, host.find('~'));
    if (!host.empty()) away[host].push_back(fs::path(file).filename().string());
    return !host.empty();
  });
  for (const auto& [host, names] : away) {
    std::string list;
    for (size_t i = 0; i < names.size() && i < 8; ++i) list += (i ? ", " : "") + names[i];
    if (names.size() > 8) list += fmt::format(" ... ({})", names.size());
    document.findings.push_back(ToolFinding(
        "LT903", names[0], fmt::format("{} lie in the memory of host {} and could not be read here", list, host),
        fmt::format("{} 位于主机 {} 的内存中，无法在此读取", list, host),
        "`lowtide run` on that host puts them into the folder when the run ends there; if the host went down, they are lost",
        "该主机上的 `lowtide run` 会在运行结束时将其放入此目录；如果该主机已宕机，则它们已丢失"));
  }
}

}  // namespace

report::RunView JudgeFolder(const std::string& folder, const JudgeOptions& options) {
  std::vector<std::string> files = record::ListRings(folder);
  if (files.empty()) {
    throw Error("no recorded run here (no rank*.ring file)", "name the folder that `lowtide run` printed at its start", folder);
  }
  report::RunView view;
  view.folder = folder;
  std::vector<std::vector<Judgement>> ranks;
  Ranks together;
  std::map<int, Iterations> iterations;
  SetAsideOthers(files, view.document);
  for (JudgedRing& ring : JudgeRings(files, options)) {
    for (Finding& finding : ring.findings) view.document.findings.push_back(std::move(finding));
    if (!ring.shown) continue;
    if (view.command.empty()) view.command = ring.script;
    view.seconds = std::max(view.seconds, ring.rank.seconds);
    view.ranks.push_back(ring.rank);
    if (ring.rank.steps == 0) continue;
    iterations[ring.rank.rank] = ring.iterations;
    ranks.push_back(std::move(ring.judgements));
    for (auto& series : ring.series) view.series.push_back(std::move(series));
    together.tracks.push_back(std::move(ring.track));
    together.ended &= ring.ended;
  }
  AddVerdicts(ranks, view.document);
  std::vector<CensusFacts> censuses = ReadRankFiles(folder, view.document);
  for (finding::HolderRow& holder : view.document.holders) CountInIterations(iterations[holder.rank], holder);
  for (CensusFacts& census : censuses) {
    census.first_step = iterations[census.rank].Of(census.first_step);
    census.second_step = iterations[census.rank].Of(census.second_step);
  }
  SiftHolders(censuses, view.document);
  PlaceLeaks(view.document);
  PlaceRankBranches(view.document);
  together.facts = ReadFacts(folder);
  CompareRanks(together, view.document);
  AddSilence(view, view.document);
  return view;
}

report::RunView UnrecordedRun(const std::string& folder) {
  report::RunView view;
  view.folder = folder;
  ReadRankFiles(folder, view.document);
  AddSilence(view, view.document);
  return view;
}

}  // namespace lowtide::cli
