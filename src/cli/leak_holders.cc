#include "cli/leak_holders.h"

#include <fmt/core.h>

#include <algorithm>

namespace lowtide::cli {
namespace {

using finding::Document;
using finding::HolderRow;
using finding::VerdictRow;

// Shares of a leak's rate below which neither one holder nor all together tell where it comes from. Rates of the two
// differ by what allocators add and by when they were measured, never by this much.
constexpr double kLeastOfOne = 0.10;
constexpr double kLeastOfAll = 0.25;

bool OfLeak(const VerdictRow& leak, const HolderRow& holder) { return holder.rank == leak.rank && SameMemory(holder.pool, leak.pool); }

bool Explains(const VerdictRow& leak, const std::vector<HolderRow>& holders) {
  double most = 0, all = 0;
  for (const HolderRow& holder : holders) {
    if (!OfLeak(leak, holder)) continue;
    if (holder.bytes_per_step <= 0) return true;  // named by something other than bytes
    most = std::max(most, holder.bytes_per_step), all += holder.bytes_per_step;
  }
  const double rate = leak.bytes_per_step.value_or(0);
  return most > 0 && (most >= kLeastOfOne * rate || all >= kLeastOfAll * rate);
}

void SayWhy(const std::vector<CensusFacts>& censuses, VerdictRow& leak) {
  auto facts = std::find_if(censuses.begin(), censuses.end(), [&](const CensusFacts& other) { return other.rank == leak.rank; });
  if (facts == censuses.end() || (facts->second_step <= facts->first_step && facts->trouble.empty())) {
    leak.unnamed = "not named: the run ended, or its process could not be asked, before its objects were looked at twice; record more steps";
    leak.unnamed_zh = "未能指名：在两次检查对象之前运行已结束，或无法询问该进程；请记录更多步";
  } else if (!facts->trouble.empty()) {
    leak.unnamed = fmt::format("not named: the look at the process's objects failed: {}; see `lowtide doctor`", facts->trouble);
    leak.unnamed_zh = fmt::format("未能指名：检查进程对象失败：{}；参见 `lowtide doctor`", facts->trouble);
  } else if (facts->at_exit) {
    leak.unnamed = fmt::format(
        "not named: the run ended {} steps after the first look at its objects, and at its end the variables of its functions are "
        "gone; record more steps, or end it with --steps N",
        facts->second_step - facts->first_step);
    leak.unnamed_zh = fmt::format("未能指名：首次检查对象后仅 {} 步运行即结束，结束时其函数的变量已不存在；请记录更多步，或用 --steps N 结束运行",
                                  facts->second_step - facts->first_step);
  } else {
    leak.unnamed = fmt::format(
        "not named: between steps {} and {} no Python object came to hold what grows; C or C++ code holds it, or it grows in other steps",
        facts->first_step, facts->second_step);
    leak.unnamed_zh = fmt::format("未能指名：在第 {} 步与第 {} 步之间没有 Python 对象持有新增部分；由 C 或 C++ 代码持有，或在其他步中增长",
                                  facts->first_step, facts->second_step);
  }
}

}  // namespace

bool SameMemory(const std::string& a, const std::string& b) {
  auto host = [](const std::string& pool) { return pool == "cpu" || pool == "heap" || pool == "host"; };
  return a == b || (host(a) && host(b));
}

namespace {

// Memory without an owner in Python is no news where tensors leak and have one: buffers of libraries that follow the
// workload's size. It stays, after the names, where the heap itself leaks.
void DemoteNative(Document& document) {
  auto leaks = [&](const HolderRow& holder, const char* pool) {
    return std::any_of(document.verdicts.begin(), document.verdicts.end(), [&](const VerdictRow& row) {
      return row.rank == holder.rank && row.pool == pool && row.verdict == "leak" && row.explained_by.empty();
    });
  };
  auto native = [&](const HolderRow& holder) { return holder.code == "LT403" && leaks(holder, "cpu"); };
  std::erase_if(document.holders, [&](const HolderRow& holder) { return native(holder) && !leaks(holder, "heap"); });
  std::stable_partition(document.holders.begin(), document.holders.end(), [&](const HolderRow& holder) { return !native(holder); });
}

// Whether all of a holder's memory was judged, and none of it may grow without end: who holds what is no news there.
// Resident memory moves by itself.
bool IsSettled(const std::vector<VerdictRow>& verdicts, const HolderRow& holder) {
  bool any = false;
  for (const VerdictRow& row : verdicts) {
    if (row.rank != holder.rank || row.pool == "host" || !SameMemory(row.pool, holder.pool)) continue;
    if (row.verdict != "healthy" && row.verdict != "bounded" && row.verdict != "step_change") return false;
    any = true;
  }
  return any;
}

}  // namespace

void SiftHolders(const std::vector<CensusFacts>& censuses, Document& document) {
  std::erase_if(document.holders, [&](const HolderRow& holder) { return IsSettled(document.verdicts, holder); });
  for (VerdictRow& leak : document.verdicts) {
    if (leak.verdict != "leak" || !leak.explained_by.empty() || Explains(leak, document.holders)) continue;
    std::erase_if(document.holders, [&](const HolderRow& holder) { return OfLeak(leak, holder); });
    SayWhy(censuses, leak);
  }
  const bool named = std::any_of(document.holders.begin(), document.holders.end(),
                                 [](const HolderRow& holder) { return holder.code != "LT403" && !holder.file.empty(); });
  if (named) DemoteNative(document);
}

void PlaceLeaks(Document& document) {
  for (const VerdictRow& row : document.verdicts) {
    if (row.verdict != "leak" || row.fingerprint.empty()) continue;
    auto found = std::find_if(document.findings.begin(), document.findings.end(),
                              [&](const finding::Finding& other) { return other.fingerprint == row.fingerprint; });
    if (found == document.findings.end()) continue;
    const HolderRow *first = nullptr, *placed = nullptr;
    for (const HolderRow& holder : document.holders) {
      if (!OfLeak(row, holder)) continue;
      if (!first) first = &holder;
      if (!placed && !holder.file.empty()) placed = &holder;
    }
    if (placed) found->where.insert(found->where.begin(), {placed->file, placed->line, 0, placed->path, {}, {}});
    if (!first || first->help.empty()) continue;
    const std::string more = first->code.empty() ? "" : fmt::format(" (`lowtide explain {}`)", first->code);
    found->help = first->help + more;
    found->help_zh = (first->help_zh.empty() ? first->help : first->help_zh) + more;
  }
}

}  // namespace lowtide::cli
