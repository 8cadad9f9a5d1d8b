#include "series/blocks.h"

#include <algorithm>

namespace lowtide::series {

Block MakeBlock(std::span<const Sample> samples) {
  std::array<double, kMaxSamples> values, peaks;
  size_t n = std::min(samples.size(), kMaxSamples);
  for (size_t i = 0; i < n; ++i) values[i] = samples[i].value, peaks[i] = samples[i].peak;
  size_t rank = n / 4;
  Block block;
  std::nth_element(values.begin(), values.begin() + rank, values.begin() + n);
  block.low = values[rank];
  block.min = *std::min_element(values.begin(), values.begin() + rank + 1);
  std::nth_element(peaks.begin(), peaks.begin() + rank, peaks.begin() + n);
  block.peak = peaks[rank];
  block.first = samples.front().step;
  block.last = samples[n - 1].step;
  return block;
}

Block Merge(std::span<const Block> blocks) {
  Block out = blocks.front();
  double n = static_cast<double>(blocks.size());
  out.low = out.peak = 0;
  for (auto& block : blocks) {
    out.low += block.low / n;
    out.peak += block.peak / n;
    out.min = std::min(out.min, block.min);
  }
  out.last = blocks.back().last;
  return out;
}

void BlockRing::Add(const Block& block) {
  if (size_ == kBlocks) history_max_ = std::max(history_max_, blocks_[next_].low);
  blocks_[next_] = block;
  next_ = (next_ + 1) % kBlocks;
  size_ = std::min(size_ + 1, kBlocks);
  ++added_;
}

void BlockRing::CopyTo(std::vector<Block>& out) const {
  out.clear();
  for (size_t i = 0; i < size_; ++i) out.push_back(blocks_[(next_ + kBlocks - size_ + i) % kBlocks]);
}

size_t Pyramid::Add(const Block& block) {
  Block current = block;
  for (size_t l = 0; l < kLevels; ++l) {
    if (l == levels_.size()) levels_.emplace_back();
    levels_[l].Add(current);
    waiting_[l][waiting_size_[l]++] = current;
    if (waiting_size_[l] < 4) return l + 1;
    waiting_size_[l] = 0;
    current = Merge(waiting_[l]);
  }
  return kLevels;
}

void WholeRun::Add(const Block& base) {
  ++added_;
  if (partial_count_++ == 0) {
    partial_ = base;
  } else {
    double weight = 1.0 / static_cast<double>(partial_count_);
    partial_.low += (base.low - partial_.low) * weight;
    partial_.peak += (base.peak - partial_.peak) * weight;
    partial_.min = std::min(partial_.min, base.min);
    partial_.last = base.last;
  }
  if (partial_count_ < each_) return;
  blocks_.push_back(partial_);
  partial_count_ = 0;
  if (blocks_.size() < 2 * kHalf) return;
  for (size_t i = 0; i < kHalf; ++i) blocks_[i] = Merge(std::span(&blocks_[2 * i], 2));
  blocks_.resize(kHalf);
  each_ *= 2;
}

void WholeRun::CopyTo(std::vector<Block>& out) const {
  out = blocks_;
  if (partial_count_ * 2 >= each_ && partial_count_ > 0) out.push_back(partial_);
}

}  // namespace lowtide::series
