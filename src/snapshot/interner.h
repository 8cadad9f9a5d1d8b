#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "snapshot/pod_vector.h"

namespace lowtide::snapshot {

struct Frame {
  uint32_t name = 0, file = 0;  // string ids
  int32_t line = 0;
  uint32_t fx = 0;  // the FX node behind the frame, when the dump was augmented with FX traces
  // The FX node is a remark, not part of what a frame is.
  bool operator==(const Frame& other) const {
    return name == other.name && file == other.file && line == other.line;
  }
};

// Equal contents, one id; ids count up from 0. String 0 is "", stack 0 is the empty stack. Innermost frame
// first.
class Interner {
 public:
  Interner();

  uint32_t String(std::string_view text);
  uint32_t FrameId(const Frame& frame);
  uint32_t Stack(std::span<const uint32_t> frames);

  std::string_view text(uint32_t string) const { return strings_[string]; }
  const Frame& frame(uint32_t frame) const { return frames_[frame]; }
  std::span<const uint32_t> stack(uint32_t stack) const {
    return {stack_frames_.data() + stack_begins_[stack], stack_begins_[stack + 1] - stack_begins_[stack]};
  }
  uint32_t string_count() const { return static_cast<uint32_t>(strings_.size()); }
  uint32_t frame_count() const { return static_cast<uint32_t>(frames_.size()); }
  uint32_t stack_count() const { return static_cast<uint32_t>(stack_begins_.size() - 1); }
  // Bytes held, for the reader's budget.
  uint64_t memory() const { return memory_; }

 private:
  // Open addressing over ids + 1; 0 is an empty slot.
  class Table {
   public:
    template <typename Equal>
    uint32_t* Find(uint64_t hash, Equal equal);
    void Added(uint64_t hash);
    size_t bytes() const { return slots_.capacity() * sizeof(Slot); }

   private:
    struct Slot {
      uint32_t id_plus_one, hash;
    };
    void Grow();
    PodVector<Slot> slots_;
    size_t used_ = 0;
  };

  const char* Keep(std::string_view text);
  void Account();

  uint64_t seed_;
  uint64_t memory_ = 0, kept_ = 0;
  std::deque<std::string> arena_;
  std::vector<std::string_view> strings_;
  PodVector<Frame> frames_;
  PodVector<uint32_t> stack_frames_;
  PodVector<uint64_t> stack_begins_;
  Table string_table_, frame_table_, stack_table_;
};

}  // namespace lowtide::snapshot
