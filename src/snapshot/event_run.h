#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "snapshot/builder.h"
#include "snapshot/unpickler.h"

namespace lowtide::snapshot {

// Parses a run of trace events as CPython's pickler writes them (protocol 4+), without an operand stack: nine
// bytes in ten of a snapshot are such events, and nine opcodes in ten of those are references that make up a
// stack. A run of references is interned by the hash of its raw bytes, so that a stack met before costs one
// scan.
//
// A run may start where the number of memo entries before it is not known yet (another thread is still
// counting): references are kept symbolic and resolved by Merge().
class EventRun {
 public:
  // `prefix`: the memo entries known so far; must stay valid and unchanged during Parse().
  explicit EventRun(Source source) : source_(source) {}

  // Parses events from `pos`, which must be at the start of an event inside a batch, until an event starts at
  // or after `stop` or something else comes. Returns where it stopped: at the start of an event, or at the
  // APPENDS that ends the list's batch when no further batch follows it.
  size_t Parse(size_t pos, size_t stop, const uint32_t* prefix, size_t prefix_size);

  const Source& source() const { return source_; }
  size_t event_count() const { return events_.size(); }
  uint64_t memory() const { return events_.size() * sizeof(Event) + memo_.size() * 4 + table_bytes_; }

  // Appends the events to the builder's and the memo entries to `memo`; what was parsed is then forgotten,
  // what was learnt is kept. Throws Error when a reference does not fit.
  void Merge(Builder& builder, PodVector<uint32_t>& memo);

 private:
  using Symbol = uint32_t;  // 3 bits of tag, 29 of id
  // Ids of kOther: 0 for what is never referenced, below kFirstPair an event plus 1, else a pair.
  enum Tag : uint32_t { kUnset, kAbsolute, kGlobalString, kString, kFrame, kStack, kEmptyList, kOther };
  static constexpr uint32_t kFirstPair = 1u << 28;
  static Symbol Make(Tag tag, uint64_t id) {
    return static_cast<uint32_t>(tag) << 29 | static_cast<uint32_t>(id);
  }
  // A reference by index; one that no file can have leads nowhere.
  static Symbol Absolute(uint64_t index) {
    return index <= 0x1fffffff ? Make(kAbsolute, index) : Make(kOther, 0);
  }
  static Tag TagOf(Symbol symbol) { return static_cast<Tag>(symbol >> 29); }
  static uint32_t IdOf(Symbol symbol) { return symbol & 0x1fffffff; }

  struct LocalFrame {
    Symbol name = 0, file = 0, fx = 0;
    int32_t line = 0;
  };
  struct LocalStack {
    uint64_t begin = 0;  // in raw_ or in items_
    uint32_t count = 0;  // bytes or items
    bool raw = false;
  };
  struct LocalContext {
    int64_t stream = 0;
    Symbol compile_context = 0, user_metadata = 0;
    std::pair<int64_t, int64_t> pool{0, 0};
    Symbol pool_reference = 0;  // instead of pool
    bool has_pool = false;
    bool operator==(const LocalContext&) const = default;
  };
  struct Late {
    uint64_t event;
    Symbol action;
  };
  struct Cursor;

  bool ParseEvent(Cursor& cursor);
  bool ParseField(Cursor& cursor, uint32_t key, Event& event, LocalContext& context);
  bool ParseFrames(Cursor& cursor, Symbol* stack);
  bool ParseMixedFrames(Cursor& cursor, Symbol* stack);
  bool ParseFrame(Cursor& cursor, Symbol* frame);
  bool ParseKey(Cursor& cursor, uint32_t* key) const;
  uint32_t KeyAt(uint64_t index) const;
  bool ParseString(Cursor& cursor, Symbol* string);
  bool ParsePool(Cursor& cursor, LocalContext& context);
  Symbol Reference(uint64_t index) const;
  Symbol InternString(std::string_view text);
  Symbol InternRun(const uint8_t* begin, size_t size);
  // The predicted stack when the bytes at `begin` are its run, else 0.
  Symbol PredictRun(const uint8_t* begin, const uint8_t* end, size_t* size) const;
  void Followed(Symbol stack);
  uint32_t InternContext(const LocalContext& context);
  struct Checkpoint {
    size_t memo, events, items, frames, stacks, late, pairs;
  };
  Checkpoint Here() const;
  void Rollback(const Checkpoint& to);

  struct Resolver;

  Source source_;
  const uint32_t* prefix_ = nullptr;
  size_t prefix_size_ = 0;
  PodVector<Event> events_;  // stack: a Symbol; context: a local one
  PodVector<Symbol> memo_;
  std::vector<Late> late_actions_;
  std::vector<std::pair<int64_t, int64_t>> pairs_;  // of this run's memo

  // Learnt: grows with distinct contents only. The second of each pair holds what Merge() has resolved so
  // far.
  std::deque<std::string> string_text_;
  std::unordered_map<std::string_view, uint32_t> string_ids_;
  std::vector<uint32_t> string_global_;
  PodVector<LocalFrame> frames_;
  std::vector<uint32_t> frame_global_;
  std::string raw_;
  PodVector<Symbol> items_;
  PodVector<LocalStack> stacks_;
  std::vector<uint32_t> stack_global_;
  std::vector<LocalContext> contexts_;
  std::vector<uint32_t> context_global_;
  std::unordered_multimap<uint64_t, uint32_t> context_ids_;
  uint32_t last_context_ = 0;
  struct Slot {
    uint64_t hash;
    uint32_t stack_plus_one;
  };
  PodVector<Slot> run_slots_;
  // Training repeats itself: the stack that followed each raw stack the last time is tried first, without a
  // scan.
  PodVector<uint32_t> next_stack_;
  uint32_t last_stack_ = 0;
  std::string_view last_text_;  // of the string interned last, which most events repeat
  uint32_t last_text_id_ = 0;
  uint32_t short_keys_[256] = {};  // of BINGET operands; 0 unknown
  size_t runs_used_ = 0;
  uint64_t seed_ = 0, keys_seen_ = 0, table_bytes_ = 0;
};

// Tells the kernel that the pages of a mapped source between two offsets are not needed again soon.
void ReleaseRange(const Source& source, size_t begin, size_t end);
// Tells it that they are about to be read: one call maps what would else be thousands of page faults.
void ExpectRange(const Source& source, size_t begin, size_t end);

}  // namespace lowtide::snapshot
