// What an EventRun learns: strings, raw stacks, contexts. Equal contents are stored once.
#include <algorithm>
#include <cstring>

#include "snapshot/event_run.h"
#include "snapshot/hash.h"
#include "snapshot/opcodes.h"

namespace lowtide::snapshot {

EventRun::Symbol EventRun::InternString(std::string_view text) {
  if (text == last_text_ && !string_text_.empty()) return Make(kString, last_text_id_);
  auto found = string_ids_.find(text);
  if (found != string_ids_.end()) {
    last_text_ = found->first;
    last_text_id_ = found->second;
    return Make(kString, found->second);
  }
  const auto id = static_cast<uint32_t>(string_text_.size());
  string_text_.emplace_back(text);
  string_ids_.emplace(string_text_.back(), id);
  last_text_ = string_text_.back();
  last_text_id_ = id;
  table_bytes_ += text.size() + 128;
  return Make(kString, id);
}

EventRun::Symbol EventRun::PredictRun(const uint8_t* begin, const uint8_t* end, size_t* size) const {
  if (last_stack_ >= next_stack_.size() || next_stack_[last_stack_] == 0) return 0;
  const uint32_t guess = next_stack_[last_stack_] - 1;
  const LocalStack& stack = stacks_[guess];
  if (stack.count >= static_cast<size_t>(end - begin) || begin[stack.count] != op::kAppends) return 0;
  // Equal bytes from an opcode's start are equal opcodes, and an APPENDS after them ends the list as it did
  // before.
  if (std::memcmp(raw_.data() + stack.begin, begin, stack.count) != 0) return 0;
  *size = stack.count;
  return Make(kStack, guess);
}

void EventRun::Followed(Symbol stack) {
  const uint32_t id = IdOf(stack);
  while (next_stack_.size() <= std::max(id, last_stack_)) next_stack_.push_back(0);
  next_stack_[last_stack_] = id + 1;
  last_stack_ = id;
}

EventRun::Symbol EventRun::InternRun(const uint8_t* begin, size_t size) {
  if (runs_used_ * 2 >= run_slots_.size()) {
    PodVector<Slot> old = std::move(run_slots_);
    run_slots_ = PodVector<Slot>();
    run_slots_.resize(old.empty() ? 1024 : old.size() * 2);
    std::memset(static_cast<void*>(run_slots_.data()), 0, run_slots_.size() * sizeof(Slot));
    for (const Slot& slot : old) {
      if (!slot.stack_plus_one) continue;
      size_t i = slot.hash & (run_slots_.size() - 1);
      while (run_slots_[i].stack_plus_one) i = (i + 1) & (run_slots_.size() - 1);
      run_slots_[i] = slot;
    }
  }
  if (!seed_) seed_ = HashSeed() | 1;
  const uint64_t hash = HashBytes(begin, size, seed_);
  const size_t mask = run_slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot& slot = run_slots_[i];
    if (!slot.stack_plus_one) {
      LocalStack stack;
      stack.raw = true;
      stack.begin = raw_.size();
      stack.count = static_cast<uint32_t>(size);
      raw_.append(reinterpret_cast<const char*>(begin), size);
      stacks_.push_back(stack);
      slot = {hash, static_cast<uint32_t>(stacks_.size())};
      ++runs_used_;
      table_bytes_ += size * 3 + sizeof(LocalStack) + 2 * sizeof(Slot);
      return Make(kStack, stacks_.size() - 1);
    }
    if (slot.hash != hash) continue;
    const LocalStack& stack = stacks_[slot.stack_plus_one - 1];
    if (stack.count == size && std::memcmp(raw_.data() + stack.begin, begin, size) == 0) {
      return Make(kStack, slot.stack_plus_one - 1);
    }
  }
}

uint32_t EventRun::InternContext(const LocalContext& context) {
  if (!contexts_.empty() && contexts_[last_context_] == context) return last_context_;
  uint64_t hash = HashInteger(static_cast<uint64_t>(context.stream), HashSeed());
  hash = HashInteger(hash ^ (static_cast<uint64_t>(context.compile_context) << 32 | context.user_metadata),
                     hash);
  hash = HashInteger(
      hash ^ static_cast<uint64_t>(context.pool.first) ^ (static_cast<uint64_t>(context.pool.second) << 32),
      hash + context.has_pool + (static_cast<uint64_t>(context.pool_reference) << 8));
  auto [begin, end] = context_ids_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (contexts_[it->second] == context) return last_context_ = it->second;
  }
  contexts_.push_back(context);
  last_context_ = static_cast<uint32_t>(contexts_.size() - 1);
  context_ids_.emplace(hash, last_context_);
  table_bytes_ += sizeof(LocalContext) + 64;
  return last_context_;
}

}  // namespace lowtide::snapshot
