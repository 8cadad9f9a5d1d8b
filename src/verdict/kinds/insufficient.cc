#include <fmt/core.h>

#include "base/units.h"
#include "verdict/kinds/kinds.h"

namespace lowtide::verdict {

Words InsufficientWords(const Judgement& j) {
  Text pool = PoolWords(j), span = SpanWords(j);
  Words out;
  Text how = j.state == State::kSuspect
                 ? Text{fmt::format("is rising by about {} beyond chance, but not yet for long enough to "
                                    "tell a leak from a start-up",
                                    AmountPerStep(j, j.bytes_per_step.value_or(0))),
                        fmt::format("正以每步约 {} 上升且超出偶然, 但时间还不够, 无法区分泄漏与启动阶段",
                                    Amount(j, j.bytes_per_step.value_or(0)))}
                 : Text{"cannot be judged yet", "尚无法判断"};
  out.reason = {fmt::format("{} {} ({}).", pool.en, how.en, span.en),
                fmt::format("{} {} ({})。", pool.zh, how.zh, span.zh)};
  if (j.steps_needed) {
    auto count = static_cast<uint64_t>(std::max(1.0, *j.steps_needed));
    auto steps = FormatCount(count);
    out.reason.en += fmt::format(" About {} more step{} it.", steps, count == 1 ? " decides" : "s decide");
    out.reason.zh += fmt::format(" 再有约 {} 步即可判定。", steps);
  }
  if (j.state == State::kSuspect) out.code = "LT209";
  out.help = {"Run longer, or read memory more often.", "延长运行, 或更频繁地读取内存。"};
  return out;
}

}  // namespace lowtide::verdict
