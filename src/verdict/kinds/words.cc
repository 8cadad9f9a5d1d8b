#include <fmt/core.h>

#include <cmath>

#include "base/units.h"
#include "verdict/kinds/kinds.h"

namespace lowtide::verdict {
namespace {

uint64_t Count(double v) { return v > 0 ? static_cast<uint64_t>(v + 0.5) : 0; }
bool IsCount(const Judgement& j) { return j.pool == "fds"; }

}  // namespace

Text PoolWords(const Judgement& j) {
  Text out;
  const std::string& p = j.pool;
  std::string device = p.find(':') == std::string::npos ? "" : p.substr(p.find(':') + 1);
  if (j.figure == Figure::kNameless)
    out = {"the figure", "该数值"};
  else if (j.figure == Figure::kDriver)
    out = {fmt::format("the memory in use on GPU {}", device), fmt::format("GPU {} 的已用显存", device)};
  else if (j.figure == Figure::kRunningPeak)
    out = {fmt::format("the peak of GPU {}'s memory", device), fmt::format("GPU {} 的显存峰值", device)};
  else if (p.starts_with("cuda"))
    out = {fmt::format("memory allocated by tensors on GPU {}", device),
           fmt::format("GPU {} 上张量占用的显存", device)};
  else if (p.starts_with("device-other"))
    out = {fmt::format("memory of GPU {} outside PyTorch's allocator", device),
           fmt::format("GPU {} 上 PyTorch 分配器之外的显存", device)};
  else if (p == "cpu")
    out = {"CPU tensor memory", "CPU 张量内存"};
  else if (p == "heap")
    out = {"the C heap", "C 堆"};
  else if (p == "python")
    out = {"Python's small objects", "Python 小对象"};
  else if (p == "host")
    out = {"the process's memory (RSS)", "进程内存 (RSS)"};
  else if (p == "workers")
    out = {"the DataLoader workers' memory", "DataLoader 子进程的内存"};
  else if (p == "shm")
    out = {"shared memory", "共享内存"};
  else if (p == "fds")
    out = {"the number of open descriptors", "打开的文件描述符数"};
  else
    out = {p, p};
  if (j.ranks > 1)
    out.en += fmt::format(" on rank {}", j.rank), out.zh = fmt::format("rank {} 的", j.rank) + out.zh;
  return out;
}

std::string Amount(const Judgement& j, double value) {
  return IsCount(j) ? fmt::format("{:.0f}", value) : FormatBytes(value);
}

std::string AmountPerStep(const Judgement& j, double value) {
  return IsCount(j) ? fmt::format("{:.3g}/step", value) : FormatRate(value);
}

Text SpanWords(const Judgement& j) {
  auto readings = FormatCount(j.readings), first = FormatCount(Count(j.first_step)),
       last = FormatCount(Count(j.last_step));
  return {fmt::format("{} readings, steps {} to {}", readings, first, last),
          fmt::format("{} 个读数, 第 {} 到 {} 步", readings, first, last)};
}

}  // namespace lowtide::verdict
