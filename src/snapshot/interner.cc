#include "snapshot/interner.h"

#include <chrono>
#include <cstddef>
#include <cstring>

#include "snapshot/hash.h"

namespace lowtide::snapshot {

uint64_t HashSeed() {
  static const uint64_t seed = [] {
    int on_stack = 0;
    return Fold(reinterpret_cast<uintptr_t>(&on_stack) ^ 0x2545f4914f6cdd1dull,
                static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) | 1);
  }();
  return seed;
}

template <typename Equal>
uint32_t* Interner::Table::Find(uint64_t hash, Equal equal) {
  if (used_ * 2 >= slots_.size()) Grow();
  const uint32_t tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t i = tag & mask;; i = (i + 1) & mask) {
    Slot& slot = slots_[i];
    if (slot.id_plus_one == 0) {
      slot.hash = tag;
      return &slot.id_plus_one;
    }
    if (slot.hash == tag && equal(slot.id_plus_one - 1)) return &slot.id_plus_one;
  }
}

void Interner::Table::Added(uint64_t) { ++used_; }

void Interner::Table::Grow() {
  PodVector<Slot> old = std::move(slots_);
  slots_ = PodVector<Slot>();
  slots_.resize(old.empty() ? 256 : old.size() * 2);
  std::memset(static_cast<void*>(slots_.data()), 0, slots_.size() * sizeof(Slot));
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id_plus_one == 0) continue;
    size_t i = slot.hash & mask;
    while (slots_[i].id_plus_one) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

Interner::Interner() : seed_(HashSeed()) {
  stack_begins_.push_back(0);
  String("");
  Stack({});
}

const char* Interner::Keep(std::string_view text) {
  constexpr size_t kChunk = 1 << 16;
  if (arena_.empty() || arena_.back().capacity() - arena_.back().size() < text.size()) {
    arena_.emplace_back();
    arena_.back().reserve(text.size() > kChunk ? text.size() : kChunk);
  }
  std::string& chunk = arena_.back();
  const char* at = chunk.data() + chunk.size();
  chunk.append(text);
  kept_ += text.size();
  return at;
}

void Interner::Account() {
  memory_ = kept_ + strings_.size() * sizeof(std::string_view) + frames_.size() * sizeof(Frame) +
            stack_frames_.size() * 4 + stack_begins_.size() * 8 + string_table_.bytes() +
            frame_table_.bytes() + stack_table_.bytes();
}

uint32_t Interner::String(std::string_view text) {
  const uint64_t hash = HashBytes(text.data(), text.size(), seed_);
  uint32_t* slot = string_table_.Find(hash, [&](uint32_t id) { return strings_[id] == text; });
  if (*slot) return *slot - 1;
  *slot = static_cast<uint32_t>(strings_.size()) + 1;
  const uint32_t id = *slot - 1;
  strings_.emplace_back(Keep(text), text.size());
  string_table_.Added(hash);
  Account();
  return id;
}

uint32_t Interner::FrameId(const Frame& frame) {
  const uint64_t hash = HashBytes(&frame, offsetof(Frame, fx), seed_);
  uint32_t* slot = frame_table_.Find(hash, [&](uint32_t id) { return frames_[id] == frame; });
  if (*slot) return *slot - 1;
  *slot = static_cast<uint32_t>(frames_.size()) + 1;
  const uint32_t id = *slot - 1;
  frames_.push_back(frame);
  frame_table_.Added(hash);
  Account();
  return id;
}

uint32_t Interner::Stack(std::span<const uint32_t> frames) {
  const uint64_t hash = HashBytes(frames.data(), frames.size_bytes(), seed_);
  uint32_t* slot = stack_table_.Find(hash, [&](uint32_t id) {
    auto have = stack(id);
    return have.size() == frames.size() &&
           (frames.empty() || std::memcmp(have.data(), frames.data(), frames.size_bytes()) == 0);
  });
  if (*slot) return *slot - 1;
  *slot = stack_count() + 1;
  const uint32_t id = *slot - 1;
  stack_frames_.append(frames.data(), frames.size());
  stack_begins_.push_back(stack_frames_.size());
  stack_table_.Added(hash);
  Account();
  return id;
}

}  // namespace lowtide::snapshot
