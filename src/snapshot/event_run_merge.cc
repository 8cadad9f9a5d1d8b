// References of an EventRun are resolved once the number of memo entries before it is known.
#include <cstring>

#include "base/error.h"
#include "snapshot/event_run.h"

namespace lowtide::snapshot {

namespace {
constexpr size_t kKeepBytes = 4 << 20;    // of buffers, from one piece to the next
constexpr size_t kForgetEvery = 1 << 16;  // events: a long run is never held twice
}  // namespace

// Looks entries up by absolute index: before `base` in the reader's memo, then in the run's own.
struct EventRun::Resolver {
  EventRun& run;
  Builder& builder;
  const PodVector<uint32_t>& memo;
  size_t base;
  uint32_t first_event;

  [[noreturn]] void Fail() const {
    throw Error("a memo reference in a trace event leads to the wrong kind of object",
                "the file is damaged; write it again with torch.cuda.memory._dump_snapshot()",
                builder.snapshot().file, builder.offset);
  }
  // A symbol that is not a reference; absolute ones are followed one step, which is all there can be.
  Symbol Follow(Symbol symbol) const {
    if (TagOf(symbol) != kAbsolute || IdOf(symbol) < base) return symbol;
    if (IdOf(symbol) - base >= run.memo_.size()) Fail();
    return run.memo_[IdOf(symbol) - base];
  }
  uint32_t Entry(Symbol symbol, Value::Kind kind) const {
    if (IdOf(symbol) >= memo.size() || memo::Kind(memo[IdOf(symbol)]) != kind) Fail();
    return memo::Id(memo[IdOf(symbol)]);
  }
  StringId String(Symbol symbol) const {
    symbol = Follow(symbol);
    switch (TagOf(symbol)) {
      case kUnset:
        return 0;
      case kGlobalString:
        return IdOf(symbol);
      case kString:
        return run.string_global_[IdOf(symbol)];
      case kAbsolute:
        return Entry(symbol, Value::kString);
      default:
        Fail();
    }
  }
  uint32_t FrameOf(Symbol symbol) const {
    symbol = Follow(symbol);
    if (TagOf(symbol) == kFrame) return run.frame_global_[IdOf(symbol)];
    if (TagOf(symbol) != kAbsolute) Fail();
    return Entry(symbol, Value::kFrame);
  }
  StackId StackOf(Symbol symbol, bool* empty) const {
    symbol = Follow(symbol);
    *empty = TagOf(symbol) == kEmptyList;
    switch (TagOf(symbol)) {
      case kUnset:
      case kEmptyList:
        return 0;
      case kStack:
        return run.stack_global_[IdOf(symbol)];
      case kAbsolute: {
        if (IdOf(symbol) >= memo.size()) Fail();
        const uint32_t entry = memo[IdOf(symbol)];
        StackId stack = 0;
        if (!builder.ToStack(Value::Of(memo::Kind(entry), memo::Id(entry)), &stack, empty)) Fail();
        return stack;
      }
      default:
        Fail();
    }
  }
  uint32_t MemoEntry(Symbol symbol) const {
    switch (TagOf(symbol)) {
      case kString:
        return memo::Pack(Value::kString, run.string_global_[IdOf(symbol)]);
      case kFrame:
        return memo::Pack(Value::kFrame, run.frame_global_[IdOf(symbol)]);
      case kStack:
        return memo::Pack(Value::kStack, run.stack_global_[IdOf(symbol)]);
      case kEmptyList:
        return memo::Pack(Value::kEmptyList, 0);
      default:
        if (IdOf(symbol) >= kFirstPair)
          return memo::Pack(Value::kPair, builder.PairId(run.pairs_[IdOf(symbol) - kFirstPair]));
        if (IdOf(symbol) > 0) return memo::Pack(Value::kEvents, first_event + IdOf(symbol) - 1);
        return memo::Pack(Value::kOpaque, 0);
    }
  }
  std::pair<int64_t, int64_t> Pool(const LocalContext& context) const {
    if (!context.pool_reference) return context.pool;
    const Symbol symbol = Follow(context.pool_reference);
    if (TagOf(symbol) == kOther && IdOf(symbol) >= kFirstPair) return run.pairs_[IdOf(symbol) - kFirstPair];
    if (TagOf(symbol) != kAbsolute) Fail();
    return builder.PairOf(Entry(symbol, Value::kPair));
  }
  // The frames of a learnt stack.
  void FramesOf(const LocalStack& stack, std::vector<uint32_t>& frames) const {
    frames.clear();
    if (!stack.raw) {
      for (uint32_t i = 0; i < stack.count; ++i) frames.push_back(FrameOf(run.items_[stack.begin + i]));
      return;
    }
    const auto* p = reinterpret_cast<const uint8_t*>(run.raw_.data()) + stack.begin;
    for (const uint8_t* end = p + stack.count; p < end;) {
      uint32_t index = p[1];
      if (*p == 'j') std::memcpy(&index, p + 1, 4);
      p += *p == 'j' ? 5 : 2;
      if (index >= memo::kMostIds) Fail();
      frames.push_back(FrameOf(Make(kAbsolute, index)));
    }
  }
};

void EventRun::Merge(Builder& builder, PodVector<uint32_t>& memo) {
  Resolver resolver{*this, builder, memo, memo.size(),
                    static_cast<uint32_t>(builder.snapshot().events.size())};
  auto& names = builder.snapshot().names;
  for (size_t i = string_global_.size(); i < string_text_.size(); ++i) {
    string_global_.push_back(names.String(string_text_[i]));
  }
  for (size_t i = frame_global_.size(); i < frames_.size(); ++i) {
    const LocalFrame& local = frames_[i];
    Frame frame;
    frame.name = resolver.String(local.name);
    frame.file = resolver.String(local.file);
    frame.fx = resolver.String(local.fx);
    frame.line = local.line;
    frame_global_.push_back(names.FrameId(frame));
  }
  std::vector<uint32_t> frames;
  for (size_t i = stack_global_.size(); i < stacks_.size(); ++i) {
    resolver.FramesOf(stacks_[i], frames);
    stack_global_.push_back(names.Stack(frames));
  }
  for (size_t i = context_global_.size(); i < contexts_.size(); ++i) {
    const LocalContext& local = contexts_[i];
    Context context;
    context.stream = local.stream;
    context.compile_context = resolver.String(local.compile_context);
    if (context.compile_context == kNotApplicable) context.compile_context = 0;
    context.user_metadata = resolver.String(local.user_metadata);
    context.pool = resolver.Pool(local);
    context.has_pool = local.has_pool;
    context_global_.push_back(builder.ContextId(context));
  }
  for (const Late& late : late_actions_) {
    const StringId action = resolver.String(late.action);
    if (action >= kAlloc && action <= kWorkspaceSnapshot) {
      events_[late.event].set_action(static_cast<Action>(action - kAlloc));
    }
  }
  auto& events = builder.snapshot().events;
  const size_t first = events.size();
  events.resize(first + events_.size());
  for (size_t i = 0; i < events_.size(); ++i) {
    Event event = events_[i];
    bool empty = false;
    event.stack = resolver.StackOf(event.stack, &empty);
    if (empty) event.flags |= Event::kEmptyStack;
    event.context = context_global_[event.context];
    events[first + i] = event;
    if (i % kForgetEvery == kForgetEvery - 1) events_.ForgetBefore(i);
  }
  const size_t base = memo.size();
  memo.resize(base + memo_.size());
  for (size_t i = 0; i < memo_.size(); ++i) memo[base + i] = resolver.MemoEntry(memo_[i]);
  builder.event_keys |= keys_seen_;
  if (events_.capacity() * sizeof(Event) > kKeepBytes) {
    events_.release();
    memo_.release();
  }
  events_.clear();
  memo_.clear();
  late_actions_.clear();
  pairs_.clear();
}

}  // namespace lowtide::snapshot
