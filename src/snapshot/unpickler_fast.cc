// The reader's fast paths: stacks as raw runs of references, events without an operand stack, a second
// thread.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "snapshot/event_run.h"
#include "snapshot/hash.h"
#include "snapshot/opcodes.h"
#include "snapshot/unpickler.h"
#include "snapshot/unpickler_worker.h"

namespace lowtide::snapshot {
namespace {

constexpr size_t kEventsBeforeFast = 8;    // parsed opcode by opcode, so that the keys are in the memo
constexpr size_t kWorthAThread = 4 << 20;  // bytes ahead
constexpr size_t kEventsToTrust = 16;      // that must parse at a guessed place
constexpr size_t kPiece = 1 << 20;         // bytes between two looks at the budget
constexpr int kMostWorkerStarts = 8;       // one per device trace, and not one per hiccup

}  // namespace

// At a list just pushed: [MEMOIZE | BINPUT n] MARK (BINGET n | LONG_BINGET n)+ APPENDS. Such a run of
// references, once met, is known by its bytes.
bool Unpickler::TryReferenceRun() {
  const uint8_t* base = source_.bytes.data();
  const size_t size = source_.bytes.size();
  size_t at = pos_;
  uint64_t put = 0;
  int put_size = 0;
  if (at + 6 >= size) return false;
  if (base[at] == op::kMemoize) {
    put = memo_.size();
    put_size = 1;
  } else if (base[at] == op::kBinPut) {
    put = base[at + 1];
    put_size = 2;
  } else if (base[at] == op::kLongBinPut) {
    uint32_t index;
    std::memcpy(&index, base + at + 1, 4);
    put = index;
    put_size = 5;
  }
  at += static_cast<size_t>(put_size);
  if (base[at] != op::kMark) return false;
  const size_t begin = ++at;
  while (at + 5 < size && (base[at] == op::kBinGet || base[at] == op::kLongBinGet))
    at += base[at] == op::kBinGet ? 2 : 5;
  if (at >= size || base[at] != op::kAppends || at == begin) return false;
  StackId stack;
  if (!ReferenceStack(begin, at, &stack)) return false;
  if (put_size) Memoize(put);
  Value& list = Top();
  const uint32_t memo = list.memo;
  list = Value::Of(Value::kStack, stack);
  list.memo = memo;
  SyncMemo(list);
  pos_ = at + 1;
  return true;
}

bool Unpickler::ReferenceStack(size_t begin, size_t end, StackId* stack) {
  const uint8_t* base = source_.bytes.data();
  const std::string_view bytes(reinterpret_cast<const char*>(base + begin), end - begin);
  const uint64_t hash = HashBytes(bytes.data(), bytes.size(), HashSeed());
  auto [first, last] = runs_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (it->second.bytes == bytes) {
      *stack = it->second.stack;
      return true;
    }
  }
  std::vector<uint32_t> frames;
  for (size_t at = begin; at < end;) {
    uint32_t index = base[at + 1];
    if (base[at] == op::kLongBinGet) std::memcpy(&index, base + at + 1, 4);
    at += base[at] == op::kBinGet ? 2 : 5;
    if (index >= memo_.size() || memo::Kind(memo_[index]) != Value::kFrame) return false;
    frames.push_back(memo::Id(memo_[index]));
  }
  *stack = builder_.snapshot().names.Stack(frames);
  runs_.emplace(hash, RunEntry{std::string(bytes), *stack});
  run_bytes_ += bytes.size() + sizeof(RunEntry) + 48;
  return true;
}

// Whether the next dict is one more event of a trace: the values above the mark are events, or the list below
// it is.
bool Unpickler::InsideTrace() const {
  if (protocol_ < 4 || marks_.empty() || pos_ < retry_events_at_) return false;
  const uint32_t mark = marks_.back();
  const size_t above = stack_.size() - mark;
  if (above >= kEventsBeforeFast) return stack_[stack_.size() - 1].kind == Value::kEvents;
  return above == 0 && mark > 0 && stack_[mark - 1].kind == Value::kList &&
         builder_.EndsInEvents(stack_[mark - 1]);
}

// Takes over what `run` has parsed: events to the end of the list below the mark, entries to the memo.
void Unpickler::AdoptRun(EventRun& run) {
  const size_t first = builder_.snapshot().events.size();
  const size_t count = run.event_count();
  if (first + count >= memo::kMostIds) Fail("the file has more objects than lowtide can count");
  run.Merge(builder_, memo_);
  if (memo_.size() >= memo::kMostIds) Fail("the file has more objects than lowtide can count");
  if (!count) return;
  Value& list = stack_[marks_.back() - 1];
  const Value events = Value::Of(Value::kEvents, static_cast<uint32_t>(first), static_cast<uint32_t>(count));
  builder_.Append(list, {&events, 1});
  SyncMemo(list);
}

// In pieces, so that the budget is looked at between them.
void Unpickler::ParseEventsUpTo(size_t stop) {
  while (pos_ < stop) {
    const size_t target = std::min(stop, pos_ + kPiece);
    pos_ = events_->Parse(pos_, target, memo_.data(), memo_.size());
    AdoptRun(*events_);
    builder_.CheckBudget(memo_.size() * 4 + events_->memory());
    ReleaseRange(source_, released_, pos_);
    released_ = std::max(released_, pos_);
    if (pos_ < target) return;
  }
}

void Unpickler::TryEvents() {
  const uint32_t mark = marks_.back();
  if (mark == 0) return;
  Value& list = stack_[mark - 1];
  if (list.kind != Value::kEmptyList && list.kind != Value::kList) return;
  // What was parsed so far goes to the list below the mark, so that the rest can follow in the order of the
  // file.
  builder_.Append(list, {stack_.data() + mark, stack_.size() - mark});
  SyncMemo(list);
  stack_.resize(mark);
  StartWorkers();
  while (!workers_.empty() && pos_ < workers_.front()->begin) {
    ParseEventsUpTo(workers_.front()->begin);
    if (pos_ < workers_.front()->begin) break;  // one event for the slow path; the worker's time will come
    const std::unique_ptr<Worker> worker = std::move(workers_.front());
    workers_.erase(workers_.begin());
    worker->thread.join();
    if (worker->error) std::rethrow_exception(worker->error);
    if (pos_ != worker->begin) continue;  // the guess was no place where an event starts
    worker->prefix.release();
    AdoptRun(worker->run);
    pos_ = worker->end;
    released_ = std::max(released_, pos_);
  }
  if (workers_.empty()) ParseEventsUpTo(source_.bytes.size());
  if (pos_ < source_.bytes.size() && source_.bytes[pos_] == op::kEmptyDict) retry_events_at_ = pos_ + 2;
}

// A place at or after `from` where an event seems to start: the bytes that start the next event, and a good
// number of events that parse from there. 0 when there is none near.
size_t Unpickler::GuessEventStart(size_t from) const {
  const std::string_view all(reinterpret_cast<const char*>(source_.bytes.data()), source_.bytes.size());
  const std::string_view pattern = all.substr(pos_, 5);  // EMPTY_DICT MEMOIZE MARK BINGET action-key
  if (pattern[1] != static_cast<char>(op::kMemoize) || pattern[2] != op::kMark || pattern[3] != op::kBinGet)
    return 0;
  const std::string_view near = all.substr(0, std::min(all.size(), from + kWorthAThread));
  for (int tries = 0; tries < 64; ++tries) {
    from = near.find(pattern, from);
    if (from == std::string_view::npos) return 0;
    EventRun probe(source_);
    probe.Parse(from, std::min(all.size(), from + (64 << 10)), memo_.data(), memo_.size());
    if (probe.event_count() >= kEventsToTrust) return from;
    ++from;
  }
  return 0;
}

// Lets a thread parse events from each of some guessed places further on. What it found is used only when
// this thread arrives exactly there, so a wrong guess costs time and nothing else.
void Unpickler::StartWorkers() {
  const size_t left = source_.bytes.size() - pos_;
  if (threads_ < 2 || left < kWorthAThread || !workers_.empty() || worker_starts_ >= kMostWorkerStarts)
    return;
  ++worker_starts_;
  for (unsigned i = 1; i < threads_; ++i) {
    const size_t guess = GuessEventStart(pos_ + left / threads_ * i);
    if (!guess) break;
    auto worker = std::make_unique<Worker>(source_);
    worker->begin = worker->end = guess;
    worker->stop = source_.bytes.size();
    worker->prefix.append(memo_.data(), memo_.size());
    if (!workers_.empty()) workers_.back()->stop = guess;
    workers_.push_back(std::move(worker));
  }
  for (auto& worker : workers_) worker->Start();
}

void Unpickler::Worker::Start() {
  thread = std::thread([this] {
    try {
      while (end < stop) {
        const size_t target = std::min(stop, end + kPiece);
        const size_t from = end;
        end = run.Parse(end, target, prefix.data(), prefix.size());
        ReleaseRange(run.source(), from, end);
        if (end < target || run.memory() > 3 * (end - begin) + (8 << 20)) break;
      }
    } catch (...) {
      error = std::current_exception();
    }
  });
}

}  // namespace lowtide::snapshot
