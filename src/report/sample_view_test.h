#pragma once

#include <cmath>

#include "finding/finding.h"
#include "report/run_view.h"

namespace lowtide::report {

// A sawtooth over a floor that rises by `rate` from `onset` on.
inline SeriesView SampleSeries(const std::string& pool, int rank, uint64_t steps, double floor, double rate, uint64_t onset) {
  SeriesView series{pool, rank, {}, {}, {}};
  for (uint64_t step = 1; step <= steps; ++step) {
    double low = floor + (step > onset ? rate * static_cast<double>(step - onset) : 0);
    double tooth = 0.04 * floor * static_cast<double>((step * 37) % 11) / 11;
    series.points.push_back({step, low + tooth, low});
  }
  return series;
}

// Two ranks of one job: rank 0 and 1 leak through the same holder, the heap follows, file descriptors are healthy.
// `source` is a file whose line 3 is shown.
inline RunView SampleView(const std::string& source, uint64_t steps = 400) {
  RunView view;
  view.command = "train.py --epochs 3";
  view.folder = "lowtide-runs/train-1";
  view.exit_code = 0;
  view.seconds = 93;
  std::string print = finding::Fingerprint("LT201", {"train.history"});
  for (int rank : {0, 1}) {
    view.ranks.push_back({rank, "trainer", 4100 + rank, "", steps, 93, "exit 0", 0, {{"validation", 150, 165}, {"validation", 300, 315}}});
    auto cpu = SampleSeries("cpu", rank, steps, 12e6, 40960, 3);
    cpu.capacity = 64e6;
    view.series.push_back(std::move(cpu));
    view.series.push_back(SampleSeries("heap", rank, steps, 90e6, 43000, 3));
    view.series.push_back(SampleSeries("fds", rank, steps, 25, 0, 0));
    finding::VerdictRow row;
    row.pool = "cpu";
    row.rank = rank;
    row.verdict = "leak";
    row.watch = row.alarm = true;
    row.confidence = 0.9991;
    row.bytes_per_step = 40960;
    row.interval = {40800, 41100};
    row.onset_step = 3;
    row.phase = "step";
    row.steps_to_oom = 868;
    row.seconds_to_oom = 202;
    row.steps_seen = steps;
    row.reason = "the lower edge rose in 19 of 19 stretches, by 16.3 MB";
    row.reason_zh = "下沿在 19 段中的 19 段上升，共 16.3 MB";
    row.fingerprint = print;
    view.document.verdicts.push_back(row);
    row.pool = "heap";
    row.bytes_per_step = 43000;
    row.interval = {42000, 44000};
    row.fingerprint.clear();
    row.explained_by = "cpu";
    view.document.verdicts.push_back(row);
    finding::VerdictRow healthy;
    healthy.pool = "fds";
    healthy.rank = rank;
    healthy.verdict = "healthy";
    healthy.confidence = 0.99;
    healthy.steps_seen = steps;
    healthy.reason = "the lower edge did not rise in 19 stretches";
    healthy.reason_zh = "下沿在 19 段中没有上升";
    view.document.verdicts.push_back(healthy);
    view.document.holders.push_back({rank, "cpu", "train.history['logits'][*]", "module train, global history", "list", 16'384'000,
                                     steps, 40960, source, 3, true});
    view.document.holders.push_back({rank, "cpu", "train.cache[*]", "module train, global cache", "dict", 120'000, 12, 0, "", 0, false});
  }
  finding::Finding leak;
  leak.code = "LT201";
  leak.severity = finding::Severity::kError;
  leak.message = "CPU tensors grow by 41.0 KB/step and are never given back: a leak, with 99.9 % confidence";
  leak.message_zh = "CPU 张量每步增长 41.0 KB 且从不归还：内存泄漏，置信度 99.9 %";
  leak.where.push_back({source, 3, 5, "train.history['logits'][*]", {}, {}});
  leak.evidence.push_back({"growth", 40960, "B/step"});
  leak.help = "keep `logits.detach()` in `history`, or only the numbers you need";
  leak.help_zh = "在 `history` 中保存 `logits.detach()`，或只保存所需的数字";
  leak.fingerprint = print;
  finding::Finding lost;
  lost.code = "LT902";
  lost.severity = finding::Severity::kNote;
  lost.message = "2 records of rank0.ring are torn and were left out";
  lost.message_zh = "rank0.ring 中有 2 条记录不完整，已略去";
  lost.where.push_back({"rank0.ring", 0, 0, "", {}, {}});
  lost.help = "the verdicts rest on the records that are whole";
  lost.help_zh = "结论只依据完整的记录";
  view.document.findings = {leak, lost};
  return view;
}

}  // namespace lowtide::report
