#include "snapshot/event_run.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "snapshot/hash.h"
#include "snapshot/opcodes.h"

namespace lowtide::snapshot {
namespace {

constexpr size_t kMargin = 32;  // no single opcode read here is longer
constexpr uint32_t kOtherKey = 0xffff;

uint32_t Read32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, 4);
  return value;
}

}  // namespace

void ReleaseRange(const Source& source, size_t begin, size_t end) {
  if (!source.mapped) return;
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t base = reinterpret_cast<uintptr_t>(source.bytes.data());
  const uintptr_t from = (base + begin + page - 1) / page * page, to = (base + end) / page * page;
  if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

void ExpectRange(const Source& source, size_t begin, size_t end) {
  constexpr int kPopulateRead =
      22;  // MADV_POPULATE_READ, Linux 5.14; older kernels refuse, and pages come one by one
  constexpr size_t kMost = 4 << 20;
  if (!source.mapped || end <= begin) return;
  const uintptr_t base = reinterpret_cast<uintptr_t>(source.bytes.data());
  const uintptr_t from = (base + begin) / 4096 * 4096;
  const uintptr_t to = base + std::min({end, begin + kMost, source.bytes.size()});
  madvise(reinterpret_cast<void*>(from), to - from, kPopulateRead);
}

struct EventRun::Cursor {
  const uint8_t* p;
  const uint8_t* end;  // reads of up to kMargin bytes are safe before it

  bool more() const { return p < end; }
  // Steps over a FRAME opcode, which may stand between any two others.
  void SkipFrameOpcode() {
    while (p < end && *p == op::kFrame) p += 9;
  }
  bool Is(uint8_t opcode) {
    SkipFrameOpcode();
    return p < end && *p == opcode;
  }
  bool Eat(uint8_t opcode) {
    if (!Is(opcode)) return false;
    ++p;
    return true;
  }
  bool Int(int64_t* value) {
    SkipFrameOpcode();
    if (p >= end) return false;
    switch (*p) {
      case op::kBinInt1:
        *value = p[1];
        p += 2;
        return true;
      case op::kBinInt2:
        *value = p[1] | p[2] << 8;
        p += 3;
        return true;
      case op::kBinInt:
        *value = static_cast<int32_t>(Read32(p + 1));
        p += 5;
        return true;
      case op::kLong1: {
        const uint32_t size = p[1];
        if (size > 9) return false;
        uint64_t bits = 0;
        std::memcpy(&bits, p + 2, std::min<uint32_t>(size, 8));
        if (size == 9 && p[10] != 0 && p[10] != 0xff) return false;
        if (size && size < 8 && p[1 + size] & 0x80) bits |= ~uint64_t{0} << (8 * size);
        *value = static_cast<int64_t>(bits);
        p += 2 + size;
        return true;
      }
      default:
        return false;
    }
  }
};

EventRun::Symbol EventRun::Reference(uint64_t index) const {
  if (index < prefix_size_) {
    const uint32_t entry = prefix_[index];
    if (memo::Kind(entry) == Value::kString) return Make(kGlobalString, memo::Id(entry));
  }
  return Absolute(index);
}

bool EventRun::ParseKey(Cursor& cursor, uint32_t* key) const {
  cursor.SkipFrameOpcode();
  if (!cursor.more()) return false;
  if (*cursor.p == op::kBinGet) {
    *key = short_keys_[cursor.p[1]];
    cursor.p += 2;
    return *key != 0;
  }
  if (*cursor.p != op::kLongBinGet) return false;
  *key = KeyAt(Read32(cursor.p + 1));
  cursor.p += 5;
  return *key != 0;
}

// The key that the memo keeps at `index`; 0 when it is no string or not known yet.
uint32_t EventRun::KeyAt(uint64_t index) const {
  if (index >= prefix_size_ || memo::Kind(prefix_[index]) != Value::kString) return 0;
  const uint32_t string = memo::Id(prefix_[index]);
  return string && string < kKnownCount ? string : kOtherKey;
}

bool EventRun::ParseString(Cursor& cursor, Symbol* string) {
  cursor.SkipFrameOpcode();
  if (!cursor.more()) return false;
  const uint8_t* p = cursor.p;
  size_t size;
  switch (*p) {
    case op::kBinGet:
      *string = Reference(p[1]);
      cursor.p += 2;
      return true;
    case op::kLongBinGet:
      *string = Reference(Read32(p + 1));
      cursor.p += 5;
      return true;
    case op::kNone:
      *string = 0;
      ++cursor.p;
      return true;
    case op::kShortBinUnicode:
      size = p[1];
      p += 2;
      break;
    case op::kBinUnicode:
      size = Read32(p + 1);
      p += 5;
      break;
    default:
      return false;
  }
  if (size >= static_cast<size_t>(cursor.end - cursor.p)) return false;
  cursor.p = p + size;
  if (!cursor.Eat(op::kMemoize)) return false;
  *string = InternString({reinterpret_cast<const char*>(p), size});
  memo_.push_back(*string);
  return true;
}

bool EventRun::ParseFrame(Cursor& cursor, Symbol* frame) {
  if (!cursor.Eat(op::kEmptyDict) || !cursor.Eat(op::kMemoize)) return false;
  const size_t slot = memo_.size();
  memo_.push_back(Make(kOther, 0));
  if (!cursor.Eat(op::kMark)) return false;
  LocalFrame made;
  while (!cursor.Is(op::kSetItems)) {
    uint32_t key;
    int64_t number;
    Symbol ignored;
    if (!ParseKey(cursor, &key)) return false;
    if (key == kLine) {
      if (!cursor.Int(&number)) return false;
      made.line = static_cast<int32_t>(number);
    } else {
      Symbol* to = key == kName                 ? &made.name
                   : key == snapshot::kFilename ? &made.file
                   : key == kFxNodeName         ? &made.fx
                                                : &ignored;
      if (!ParseString(cursor, to)) return false;
    }
  }
  ++cursor.p;
  frames_.push_back(made);
  table_bytes_ += sizeof(LocalFrame) + 8;
  *frame = memo_[slot] = Make(kFrame, frames_.size() - 1);
  return true;
}

// A list of frames in which new frames are written out, or which a FRAME opcode cuts.
bool EventRun::ParseMixedFrames(Cursor& cursor, Symbol* stack) {
  const size_t begin = items_.size();
  while (!cursor.Is(op::kAppends)) {
    if (!cursor.more()) return false;
    Symbol item;
    if (*cursor.p == op::kBinGet) {
      item = Absolute(cursor.p[1]);
      cursor.p += 2;
    } else if (*cursor.p == op::kLongBinGet) {
      item = Absolute(Read32(cursor.p + 1));
      cursor.p += 5;
    } else if (!ParseFrame(cursor, &item)) {
      return false;
    }
    items_.push_back(item);
  }
  ++cursor.p;
  if (cursor.Is(op::kMark)) return false;  // another batch: deeper than 1000 frames
  LocalStack made;
  made.begin = begin;
  made.count = static_cast<uint32_t>(items_.size() - begin);
  stacks_.push_back(made);
  table_bytes_ += sizeof(LocalStack) + made.count * 4;
  *stack = Make(kStack, stacks_.size() - 1);
  return true;
}

bool EventRun::ParseFrames(Cursor& cursor, Symbol* stack) {
  cursor.SkipFrameOpcode();
  if (!cursor.more()) return false;
  if (*cursor.p == op::kBinGet) {
    *stack = Absolute(cursor.p[1]);
    cursor.p += 2;
    return true;
  }
  if (*cursor.p == op::kLongBinGet) {
    *stack = Absolute(Read32(cursor.p + 1));
    cursor.p += 5;
    return true;
  }
  if (!cursor.Eat(op::kEmptyList) || !cursor.Eat(op::kMemoize)) return false;
  const size_t slot = memo_.size();
  memo_.push_back(Make(kEmptyList, 0));
  *stack = Make(kEmptyList, 0);
  if (!cursor.Is(op::kMark))
    return true;  // empty; the item of a one-frame list is no key, and so fails there
  ++cursor.p;
  const uint8_t* begin = cursor.p;
  const uint8_t* p = begin;
  const uint8_t* end = cursor.end;
  size_t size = 0;
  if (const Symbol guess = PredictRun(begin, end, &size)) {
    last_stack_ = IdOf(guess);
    cursor.p = begin + size + 1;
    if (cursor.Is(op::kMark)) return false;
    memo_[slot] = *stack = guess;
    return true;
  }
  while (p < end) {
    if (*p == op::kBinGet) {
      p += 2;
    } else if (*p == op::kLongBinGet) {
      p += 5;
    } else {
      break;
    }
  }
  if (p >= end) return false;
  if (*p == op::kAppends && p != begin) {
    *stack = InternRun(begin, static_cast<size_t>(p - begin));
    Followed(*stack);
    cursor.p = p + 1;
    if (cursor.Is(op::kMark)) return false;
  } else if (!ParseMixedFrames(cursor, stack)) {
    return false;
  }
  memo_[slot] = *stack;
  return true;
}

bool EventRun::ParsePool(Cursor& cursor, LocalContext& context) {
  context.has_pool = true;
  if (cursor.Is(op::kBinGet)) {
    context.pool_reference = Absolute(cursor.p[1]);
    cursor.p += 2;
    return true;
  }
  if (cursor.Is(op::kLongBinGet)) {
    context.pool_reference = Absolute(Read32(cursor.p + 1));
    cursor.p += 5;
    return true;
  }
  if (!cursor.Int(&context.pool.first) || !cursor.Int(&context.pool.second)) return false;
  if (!cursor.Eat(op::kTuple2) || !cursor.Eat(op::kMemoize)) return false;
  if (pairs_.empty() || pairs_.back() != context.pool) pairs_.push_back(context.pool);
  if (pairs_.size() >= kFirstPair) return false;
  memo_.push_back(Make(kOther, kFirstPair + pairs_.size() - 1));
  return true;
}

bool EventRun::ParseField(Cursor& cursor, uint32_t key, Event& event, LocalContext& context) {
  int64_t number = 0;
  Symbol text = 0;
  switch (key) {
    case kAddr:
    case kDeviceFree:
      event.flags |= Event::kHasAddress;
      if (!cursor.Int(&number)) return false;
      event.address = static_cast<uint64_t>(number);
      return true;
    case kSize:
      if (!cursor.Int(&number)) return false;
      event.size = static_cast<uint64_t>(number);
      return true;
    case snapshot::kStream:
      return cursor.Int(&context.stream);
    case kTimeUs:
      if (!cursor.Int(&number)) return false;
      event.time_us = number;
      event.flags |= Event::kHasTime;
      return true;
    case kAction:
      if (!ParseString(cursor, &text)) return false;
      if (TagOf(text) == kGlobalString && IdOf(text) >= kAlloc && IdOf(text) <= kWorkspaceSnapshot) {
        event.set_action(static_cast<Action>(IdOf(text) - kAlloc));
      } else {
        late_actions_.push_back({events_.size(), text});
      }
      return true;
    case kCompileContext:
      return ParseString(cursor, &context.compile_context);
    case kUserMetadata:
      return ParseString(cursor, &context.user_metadata);
    case kPoolId:
      return ParsePool(cursor, context);
    case kFrames:
      if (!ParseFrames(cursor, &text)) return false;
      event.stack = text;
      return true;
    default:
      return cursor.Int(&number) || ParseString(cursor, &text);
  }
}

bool EventRun::ParseEvent(Cursor& cursor) {
  ++cursor.p;  // EMPTY_DICT
  if (!cursor.Eat(op::kMemoize)) return false;
  memo_.push_back(Make(kOther, events_.size() + 1 < kFirstPair ? events_.size() + 1 : 0));
  if (!cursor.Eat(op::kMark)) return false;
  Event event;
  LocalContext context;
  uint64_t keys = 0;
  while (!cursor.Is(op::kSetItems)) {
    uint32_t key;
    if (!ParseKey(cursor, &key) || !ParseField(cursor, key, event, context)) return false;
    if (key < kKnownCount) keys |= uint64_t{1} << key;
  }
  ++cursor.p;
  if (!(keys >> kAction & 1)) return false;
  keys_seen_ |= keys;
  event.context = InternContext(context);
  events_.push_back(event);
  return true;
}

EventRun::Checkpoint EventRun::Here() const {
  return {memo_.size(),   events_.size(),       items_.size(), frames_.size(),
          stacks_.size(), late_actions_.size(), pairs_.size()};
}

// Forgets the event that could not be parsed to its end. A stack interned from raw bytes may stay: its
// references lead to earlier entries only.
void EventRun::Rollback(const Checkpoint& to) {
  memo_.resize(to.memo);
  events_.resize(to.events);
  if (stacks_.size() > to.stacks && !stacks_.back().raw) stacks_.resize(to.stacks);
  items_.resize(to.items);
  frames_.resize(to.frames);
  late_actions_.resize(to.late);
  pairs_.resize(to.pairs);
}

size_t EventRun::Parse(size_t pos, size_t stop, const uint32_t* prefix, size_t prefix_size) {
  prefix_ = prefix;
  prefix_size_ = prefix_size;
  for (uint32_t i = 0; i < 256; ++i) short_keys_[i] = KeyAt(i);
  const uint8_t* base = source_.bytes.data();
  if (source_.bytes.size() <= kMargin) return pos;
  ExpectRange(source_, pos, stop);
  Cursor cursor{base + pos, base + source_.bytes.size() - kMargin};
  for (;;) {
    const auto at = static_cast<size_t>(cursor.p - base);
    if (at >= stop || !cursor.more()) return at;
    if (*cursor.p == op::kEmptyDict) {
      const Checkpoint start = Here();
      if (ParseEvent(cursor)) continue;
      Rollback(start);
      return at;
    }
    if (*cursor.p == op::kFrame) {
      cursor.p += 9;
      continue;
    }
    if (*cursor.p != op::kAppends) return at;
    ++cursor.p;
    if (!cursor.Eat(op::kMark)) return at;
    if (!cursor.Is(op::kEmptyDict)) return at;
  }
}

}  // namespace lowtide::snapshot
