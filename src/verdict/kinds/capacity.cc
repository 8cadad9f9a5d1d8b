#include <fmt/core.h>

#include "base/units.h"
#include "verdict/kinds/kinds.h"

namespace lowtide::verdict {

Words CapacityWords(const Judgement& j) {
  Text pool = PoolWords(j), span = SpanWords(j);
  double capacity = j.capacity.value_or(0), share = capacity > 0 ? 100 * j.peak / capacity : 0;
  Words out;
  out.code = "LT202", out.severity = finding::Severity::kWarning;
  out.reason = {
      fmt::format("{} does not grow, but its peak of {} is {:.0f} % of the {} there are: the longest batch "
                  "decides, no leak ({}).",
                  pool.en, FormatBytes(j.peak), share, FormatBytes(capacity), span.en),
      fmt::format("{} 没有增长, 但峰值 {} 已达可用 {} 的 {:.0f} %: 取决于最大的批次, 不是泄漏 ({})。",
                  pool.zh, FormatBytes(j.peak), FormatBytes(capacity), share, span.zh)};
  out.help = {
      "Lower the batch size or the longest sequence, accumulate gradients, checkpoint activations, or shard "
      "the optimizer; "
      "`lowtide plan` ranks the ways.",
      "减小批大小或最长序列, 使用梯度累积, 激活检查点或优化器分片; `lowtide plan` 会给出排序。"};
  return out;
}

}  // namespace lowtide::verdict
