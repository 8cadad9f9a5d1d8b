#include <fmt/core.h>

#include "base/units.h"
#include "verdict/kinds/kinds.h"

namespace lowtide::verdict {

Words FragmentationWords(const Judgement& j) {
  Text pool = PoolWords(j), span = SpanWords(j);
  GapFigures gap = j.gap.value_or(GapFigures{});
  Words out;
  out.code = "LT203", out.severity = finding::Severity::kWarning;
  out.reason = {
      fmt::format("The allocator reserves {} but never uses more than {} of it; the gap grew by {} in {} "
                  "rises while what tensors hold "
                  "did not: fragmentation ({}).",
                  FormatBytes(gap.reserved), FormatBytes(gap.peak), FormatBytes(gap.growth), gap.rises,
                  span.en),
      fmt::format(
          "分配器保留了 {}, 实际最多用到 {}; 空隙分 {} 次增长了 {}, 而张量占用没有增长: 碎片化 ({})。",
          FormatBytes(gap.reserved), FormatBytes(gap.peak), gap.rises, FormatBytes(gap.growth), span.zh)};
  out.help = {
      "Round batch and sequence sizes (multiples of 8, buckets of lengths); try "
      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or "
      "max_split_size_mb:512. `lowtide snapshot` shows which blocks hold the segments open.",
      "对批大小和序列长度取整 (8 的倍数, 按长度分桶); 尝试 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
      "或 max_split_size_mb:512。"
      "`lowtide snapshot` 可显示占住段的内存块。"};
  return out;
}

}  // namespace lowtide::verdict
