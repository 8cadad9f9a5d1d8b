#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

// Bounded memory of an unbounded series: blocks of consecutive samples, in a pyramid of ever longer ones for
// the recent past, and one ring that always spans the whole run.
namespace lowtide::series {

// A few consecutive samples. Steps are the first and the last of them.
struct Block {
  double low = 0;   // a low order statistic (the 2nd smallest of 4): the lower edge, deaf to spikes
  double min = 0;   // the smallest: a hard floor
  double peak = 0;  // the same order statistic of the samples' peaks
  double first = 0, last = 0;

  double Middle() const { return (first + last) / 2; }
};

struct Sample {
  double step = 0, value = 0, peak = 0;
};

// `samples` as one block; sorts scratch copies, so at most kMaxSamples of them.
inline constexpr size_t kMaxSamples = 128;
Block MakeBlock(std::span<const Sample> samples);
// Neighbours as one: means of `low` and `peak`, the smallest `min`.
Block Merge(std::span<const Block> blocks);

// The last 64 blocks of one length.
class BlockRing {
 public:
  static constexpr size_t kBlocks = 64;

  void Add(const Block& block);
  size_t size() const { return size_; }
  uint64_t added() const { return added_; }
  // Largest `low` that ever left the ring; -inf at first.
  double history_max() const { return history_max_; }
  void RaiseHistoryMax(double level) { history_max_ = history_max_ < level ? level : history_max_; }
  // Oldest first, appended to `out` after clearing it.
  void CopyTo(std::vector<Block>& out) const;
  const Block& newest() const { return blocks_[(next_ + kBlocks - 1) % kBlocks]; }

 private:
  std::array<Block, kBlocks> blocks_;
  size_t next_ = 0, size_ = 0;
  uint64_t added_ = 0;
  double history_max_ = -1e300;
};

// Level l holds the last 64 blocks of 4^l base blocks each.
class Pyramid {
 public:
  static constexpr size_t kLevels = 10;

  // Returns how many levels got a new block (level 0 always does).
  size_t Add(const Block& block);
  size_t levels() const { return levels_.size(); }
  BlockRing& level(size_t l) { return levels_[l]; }
  const BlockRing& level(size_t l) const { return levels_[l]; }

 private:
  std::vector<BlockRing> levels_;
  std::array<std::array<Block, 4>, kLevels> waiting_;
  std::array<uint8_t, kLevels> waiting_size_{};
};

// Base blocks merged in pairs whenever 2 * kHalf are full, so that between kHalf and 2 * kHalf equal blocks
// span the run.
class WholeRun {
 public:
  static constexpr size_t kHalf = 64;

  void Add(const Block& base);
  uint64_t added() const { return added_; }
  size_t base_blocks_each() const { return each_; }
  // Oldest first; what does not fill a block yet makes the last one if it fills half of it.
  void CopyTo(std::vector<Block>& out) const;

 private:
  std::vector<Block> blocks_;
  Block partial_;  // mean of the `partial_count_` base blocks so far
  size_t partial_count_ = 0, each_ = 1;
  uint64_t added_ = 0;
};

}  // namespace lowtide::series
