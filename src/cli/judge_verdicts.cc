// What is said of pools that are parts of each other: tensors lie in the C heap, Python's blocks are part of it.
#include <algorithm>

#include "cli/judge.h"

namespace lowtide::cli {
namespace {

// Below this the C heap and Python's blocks move by themselves: caches by shape, compiled patterns, interned strings.
constexpr double kHeapProofBytes = 1e6;

// A rise of the C heap that has brought little yet is a leak only once it has brought more.
void DoubtSmallHeap(verdict::Judgement& heap) {
  double rate = heap.bytes_per_step.value_or(0);
  double grown = rate * (heap.last_step - heap.onset_step.value_or(heap.first_step));
  if (heap.kind != verdict::Kind::kLeak || heap.from_ledger || grown >= kHeapProofBytes) return;
  heap.kind = verdict::Kind::kInsufficient;
  heap.alarm = false;
  heap.steps_needed = rate > 0 ? (kHeapProofBytes - grown) / rate : 1000;
  heap.note = "So little also comes from caches that fill.";
  heap.note_zh = "如此少量的增长也可能来自正在填充的缓存。";
}

// CPU tensors lie in the C heap. Where they are counted exactly and do not leak, the rest of the heap decides: sawtooths
// of tensors that the collector frees now and then are no news there.
void JudgeHeapByItsRest(std::vector<verdict::Judgement>& judgements) {
  auto find = [&](const char* pool) {
    return std::find_if(judgements.begin(), judgements.end(), [&](const auto& judgement) { return judgement.pool == pool; });
  };
  auto rest = find("rest"), heap = find("heap"), cpu = find("cpu");
  if (rest == judgements.end()) return;
  bool tensors_leak = cpu != judgements.end() && cpu->kind == verdict::Kind::kLeak;
  if (!tensors_leak && heap != judgements.end()) {
    *heap = *rest;
    heap->pool = "heap";
  }
  judgements.erase(find("rest"));
}

// Python's blocks are part of the pool `heap`, but are sampled at other steps than the C heap: judged apart, told as one.
void MergePython(std::vector<verdict::Judgement>& judgements) {
  auto find = [&](const char* pool) {
    return std::find_if(judgements.begin(), judgements.end(), [&](const auto& judgement) { return judgement.pool == pool; });
  };
  auto python = find("python"), heap = find("heap");
  if (python == judgements.end()) return;
  python->pool = "heap";
  if (heap == judgements.end()) return;
  using verdict::Kind;
  if (python->kind == Kind::kLeak && heap->kind == Kind::kLeak) {
    *heap->bytes_per_step += *python->bytes_per_step;
    if (heap->interval && python->interval) {
      heap->interval->first += python->interval->first;
      heap->interval->second += python->interval->second;
    }
    heap->note = "Python's own small objects are counted at 40 B each.";
    heap->note_zh = "Python 自身的小对象按每个 40 B 计。";
  } else if (python->kind == Kind::kLeak) {
    *heap = *python;
  }
  judgements.erase(python);
}

}  // namespace

std::vector<verdict::Judgement> RankJudge::Judge(bool final) {
  std::vector<verdict::Judgement> judgements;
  auto add = [&](const std::string& name, const Pool& pool) {
    judgements.push_back(pool.engine->Judge(final));
    judgements.back().pool = name;
    judgements.back().recorded = true;
    if (name == "heap" || name == "rest" || name == "python") DoubtSmallHeap(judgements.back());
  };
  for (const char* first : {"cpu", "heap"}) {
    if (auto pool = pools_.find(first); pool != pools_.end()) add(first, pool->second);
  }
  for (const auto& [name, pool] : pools_) {
    if (name != "cpu" && name != "heap") add(name, pool);
  }
  JudgeHeapByItsRest(judgements);
  MergePython(judgements);
  return judgements;
}

bool RankJudge::Suspicious() {
  for (const auto& judgement : Judge(false)) {
    if (judgement.pool != "host" && (judgement.watch || judgement.kind == verdict::Kind::kLeak)) return true;
  }
  return false;
}

}  // namespace lowtide::cli
