#include <fmt/core.h>

#include "base/units.h"
#include "verdict/kinds/kinds.h"

namespace lowtide::verdict {

Words StepChangeWords(const Judgement& j) {
  Text pool = PoolWords(j), span = SpanWords(j);
  auto at = FormatCount(static_cast<uint64_t>(j.step_change_at.value_or(0)));
  double bytes = j.step_change_bytes.value_or(0);
  Words out;
  out.code = "LT205";
  out.reason = {
      fmt::format("{} changed its level by {} near step {} and is level before and after ({}).", pool.en,
                  Amount(j, bytes), at, span.en),
      fmt::format("{} 在第 {} 步附近变化了 {}, 前后均平稳 ({})。", pool.zh, at, Amount(j, bytes), span.zh)};
  out.help = {
      "No leak: something was made once (optimizer state, EMA copy, validation buffers, a compiled graph) or "
      "the workload changed.",
      "不是泄漏: 一次性分配 (优化器状态, EMA 副本, 验证缓冲区, 编译图), 或工作负载发生变化。"};
  return out;
}

}  // namespace lowtide::verdict
