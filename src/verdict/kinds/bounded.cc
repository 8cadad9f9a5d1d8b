#include <fmt/core.h>

#include "verdict/kinds/kinds.h"

namespace lowtide::verdict {

Words BoundedWords(const Judgement& j) {
  Text pool = PoolWords(j), span = SpanWords(j), how;
  if (j.state == State::kReclaimed)
    how = {
        "rose and came back: what was held is freed from time to time (garbage collection of cycles, or "
        "epochs sorted by length)",
        "先升后降: 占用会不时释放 (循环引用的垃圾回收, 或按长度排序的 epoch)"};
  else if (j.state == State::kWarmup)
    how = {"grew at the start only: what was made then is kept, nothing made later is",
           "只在开始阶段增长: 当时创建的对象被保留, 之后的都已释放"};
  else if (j.from_ledger)
    how = {"holds young blocks only: old ones die as new ones come, like a buffer of fixed length",
           "只保留较新的内存块: 旧块随新块到来而释放, 类似定长缓冲区"};
  else
    how = {"grew, and is slowing down or has levelled off, like a cache that fills",
           "曾经增长, 现已放缓或持平, 类似正在填满的缓存"};
  Words out;
  out.code = "LT204";
  out.reason = {fmt::format("{} {} ({}).", pool.en, how.en, span.en),
                fmt::format("{}{} ({})。", pool.zh, how.zh, span.zh)};
  out.help = j.state == State::kReclaimed
                 ? Text{"No leak. If the peak of the sawtooth is a problem, break the reference cycle (ctx.save_for_backward instead of "
                        "attributes on ctx) or call gc.collect() at epoch boundaries.",
                        "不是泄漏。若锯齿峰值过高, 请打破循环引用 (用 ctx.save_for_backward 代替 ctx 属性), 或在 epoch 交界处调用 gc.collect()。"}
                 : Text{"No leak. Make sure that the full size fits: a cap on the cache or the buffer bounds it.",
                        "不是泄漏。请确认填满后的大小可以接受: 给缓存或缓冲区设上限。"};
  return out;
}

}  // namespace lowtide::verdict
