#include <fmt/core.h>

#include "base/units.h"
#include "verdict/kinds/kinds.h"

namespace lowtide::verdict {

Words HealthyWords(const Judgement& j) {
  Text pool = PoolWords(j), span = SpanWords(j);
  Words out;
  if (j.state == State::kRisingInRange)
    out.reason = {
        fmt::format("{} rises, but below a level that this run has already held ({}).", pool.en, span.en),
        fmt::format("{} 在上升, 但低于本次运行曾达到的水平 ({})。", pool.zh, span.zh)};
  else if (j.bytes_per_step)  // certain, but it came to nothing
    out.reason = {fmt::format("{} rises by {}, in all too little to matter ({}).", pool.en, AmountPerStep(j, *j.bytes_per_step), span.en),
                  fmt::format("{} 每步上升 {}, 总量微不足道 ({})。", pool.zh, Amount(j, *j.bytes_per_step), span.zh)};
  else
    out.reason = {fmt::format("{} shows no growth that chance cannot explain ({}).", pool.en, span.en),
                  fmt::format("{} 没有超出偶然的增长 ({})。", pool.zh, span.zh)};
  if (j.no_leak_above && *j.no_leak_above > 0) {
    out.reason.en += fmt::format(" Any steady leak is below {}.", AmountPerStep(j, *j.no_leak_above));
    out.reason.zh += fmt::format(" 若有持续泄漏, 每步低于 {}。", Amount(j, *j.no_leak_above));
    double fit = j.capacity && *j.capacity > j.peak ? (*j.capacity - j.peak) / *j.no_leak_above : 0;
    if (fit > 0 && fit < 1e9) {
      auto steps = FormatCount(static_cast<uint64_t>(fit));
      out.reason.en += fmt::format(" At least {} more steps fit.", steps);
      out.reason.zh += fmt::format(" 至少还可运行 {} 步。", steps);
    }
  }
  return out;
}

}  // namespace lowtide::verdict
