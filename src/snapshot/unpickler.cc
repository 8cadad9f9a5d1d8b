#include "snapshot/unpickler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/units.h"
#include "snapshot/opcodes.h"
#include "snapshot/unpickler_worker.h"

namespace lowtide::snapshot {
namespace {

constexpr size_t kCheckEvery = 1 << 16;  // bytes between two looks at the budget
constexpr uint32_t kMostMarks = 1000;    // nesting: a real snapshot has 7 levels

const char* const kRemedy =
    "the file is cut or damaged, or is not a CUDA memory snapshot; write it again with "
    "torch.cuda.memory._dump_snapshot()";

}  // namespace

Unpickler::Unpickler(Source source, Builder& builder, unsigned threads)
    : source_(source), builder_(builder), threads_(threads), events_(std::make_unique<EventRun>(source)) {}

Unpickler::~Unpickler() = default;

void Unpickler::Fail(const std::string& what) const {
  throw Error(what, kRemedy, builder_.snapshot_file(), builder_.offset);
}

void Unpickler::Refuse(uint8_t opcode, size_t at) const {
  for (const auto& refused : op::kRefused) {
    if (refused.opcode != opcode) continue;
    std::string what = refused.name;
    if (opcode == 'c') {  // GLOBAL 'module\nname\n'
      std::string text(reinterpret_cast<const char*>(source_.bytes.data() + at + 1),
                       std::min<size_t>(source_.bytes.size() - at - 1, 120));
      const size_t first = text.find('\n');
      if (first != std::string::npos) {
        const size_t second = text.find('\n', first + 1);
        what += fmt::format(" ({}.{})", text.substr(0, first),
                            text.substr(first + 1, second == std::string::npos ? 0 : second - first - 1));
      }
    }
    throw Error(
        fmt::format("refused the pickle opcode {}, which could run code: a memory snapshot holds data only",
                    what),
        "do not load this file with pickle.load; if it is a checkpoint or another object, it is not a memory "
        "snapshot",
        builder_.snapshot_file(), at);
  }
  throw Error(fmt::format("0x{:02x} is no pickle opcode that a memory snapshot has", opcode), kRemedy,
              builder_.snapshot_file(), at);
}

Value Unpickler::Load() {
  if (source_.bytes.empty()) Fail("the file is empty");
  while (Step()) {
  }
  ReleaseRange(source_, released_, source_.bytes.size());
  return Pop();
}

const uint8_t* Unpickler::Take(uint64_t count) {
  if (count > source_.bytes.size() - pos_) {
    Fail(fmt::format("the file ends in the middle of an object: {} more bytes were expected, {} are left",
                     FormatCount(count), FormatCount(source_.bytes.size() - pos_)));
  }
  const uint8_t* at = source_.bytes.data() + pos_;
  pos_ += count;
  return at;
}

uint64_t Unpickler::TakeInt(int bytes) {
  uint64_t value = 0;
  std::memcpy(&value, Take(static_cast<uint64_t>(bytes)), static_cast<size_t>(bytes));
  return value;
}

void Unpickler::Push(const Value& value) { stack_.push_back(value); }

Value& Unpickler::Top() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()))
    Fail("an opcode needs an object, and there is none");
  return stack_.back();
}

Value Unpickler::Pop() {
  const Value value = Top();
  stack_.resize(stack_.size() - 1);
  return value;
}

std::span<const Value> Unpickler::TakeMarked() {
  if (marks_.empty()) Fail("an opcode needs a MARK, and there is none");
  const uint32_t from = marks_.back();
  marks_.resize(marks_.size() - 1);
  const std::span<const Value> items{stack_.data() + from, stack_.size() - from};
  stack_.resize(from);
  return items;
}

void Unpickler::PushLong(uint64_t size) {
  const uint8_t* p = Take(size);
  uint64_t bits = 0;
  if (size > 8) {
    const uint8_t fill = p[size - 1] & 0x80 ? 0xff : 0;
    for (uint64_t i = 8; i < size; ++i) {
      if (p[i] != fill) Fail(fmt::format("an integer of {} bytes does not fit 64 bits", size));
    }
    size = 8;
  }
  std::memcpy(&bits, p, size);
  if (size && size < 8 && p[size - 1] & 0x80) bits |= ~uint64_t{0} << (8 * size);
  Push(Value::Int(static_cast<int64_t>(bits)));
}

void Unpickler::PushString(uint64_t size) {
  const uint8_t* p = Take(size);
  Push(builder_.String({reinterpret_cast<const char*>(p), size}));
}

void Unpickler::Memoize(uint64_t index) {
  Value& top = Top();
  // A real memo has an entry per object, and an object takes two bytes or more.
  if (index > source_.bytes.size() / 2 + 1)
    Fail(fmt::format("memo index {} is beyond what the file can hold", index));
  if (index >= Value::kNoMemo) Fail("the file has more objects than lowtide can count");
  if (index < memo_.size() && memo_[index]) runs_.clear();
  while (memo_.size() <= index) memo_.push_back(0);
  top.memo = static_cast<uint32_t>(index);
  memo_[index] = 1;
  SyncMemo(top);
}

// Called when the object that the memo keeps has changed its kind.
void Unpickler::SyncMemo(const Value& value) {
  if (value.memo == Value::kNoMemo || value.memo >= memo_.size()) return;
  switch (value.kind) {
    case Value::kNone:
    case Value::kMark:
    case Value::kBool:
    case Value::kInt:
    case Value::kFloat:
    case Value::kUnset:
      memo_[value.memo] = memo::Pack(Value::kOpaque, 0);
      return;
    default:
      if (value.id >= memo::kMostIds) Fail("the file has more objects than lowtide can count");
      memo_[value.memo] = memo::Pack(value.kind, value.id);
  }
}

void Unpickler::PushMemo(uint64_t index) {
  if (index >= memo_.size() || memo_[index] == 0)
    Fail(fmt::format("memo entry {} is used before it is made", index));
  Value value = Value::Of(memo::Kind(memo_[index]), memo::Id(memo_[index]));
  value.memo = static_cast<uint32_t>(index);
  Push(value);
}

bool Unpickler::Step() {
  builder_.offset = pos_;
  if (pos_ >= next_check_) {
    next_check_ = pos_ + kCheckEvery;
    builder_.CheckBudget(memo_.size() * 4 + stack_.capacity() * sizeof(Value) + run_bytes_ +
                         events_->memory());
    if (pos_ - released_ > kCheckEvery * 32) {
      ReleaseRange(source_, released_, pos_);
      released_ = pos_;
    }
  }
  if (pos_ >= source_.bytes.size()) Fail("the file ends before the pickle's STOP");
  const uint8_t opcode = source_.bytes[pos_++];
  if (opcode == op::kStop) {
    if (stack_.size() != 1 || !marks_.empty()) Fail("the pickle stops in the middle of an object");
    return false;
  }
  if (!StepContainer(opcode) && !StepScalar(opcode)) Refuse(opcode, pos_ - 1);
  return true;
}

bool Unpickler::StepContainer(uint8_t opcode) {
  switch (opcode) {
    case op::kMark:
      if (marks_.size() >= kMostMarks) Fail(fmt::format("objects are nested more than {} deep", kMostMarks));
      marks_.push_back(static_cast<uint32_t>(stack_.size()));
      return true;
    case op::kEmptyDict:
      if (InsideTrace()) {
        --pos_;
        const size_t before = pos_;
        TryEvents();
        if (pos_ != before) return true;
        ++pos_;
      }
      Push(Value::Of(Value::kEmptyDict));
      return true;
    case op::kEmptyList:
      Push(Value::Of(Value::kEmptyList));
      TryReferenceRun();
      return true;
    case op::kEmptyTuple:
      Push(Value::Of(Value::kEmptyList));
      return true;
    case op::kAppend: {
      const Value item = Pop();
      Value& list = Top();
      builder_.Append(list, {&item, 1});
      SyncMemo(list);
      return true;
    }
    case op::kAppends: {
      const auto items = TakeMarked();
      Value& list = Top();
      builder_.Append(list, items);
      SyncMemo(list);
      return true;
    }
    case op::kSetItem: {
      const Value value = Pop(), key = Pop();
      const Value pair[2] = {key, value};
      Value& dict = Top();
      builder_.SetItems(dict, pair);
      SyncMemo(dict);
      return true;
    }
    case op::kSetItems: {
      const auto items = TakeMarked();
      if (items.size() % 2) Fail("a dict has a key without a value");
      Value& dict = Top();
      builder_.SetItems(dict, items);
      SyncMemo(dict);
      return true;
    }
    case op::kDict: {
      const auto items = TakeMarked();
      if (items.size() % 2) Fail("a dict has a key without a value");
      Value dict = Value::Of(Value::kEmptyDict);
      if (!items.empty()) builder_.SetItems(dict, items);
      Push(dict);
      return true;
    }
    case op::kList: {
      const auto items = TakeMarked();
      Value list = Value::Of(Value::kEmptyList);
      builder_.Append(list, items);
      Push(list);
      return true;
    }
    case op::kTuple: {
      const auto items = TakeMarked();
      const Value tuple = builder_.Tuple(items);
      Push(tuple);
      return true;
    }
    case op::kTuple1:
    case op::kTuple2:
    case op::kTuple3: {
      Value items[3];
      const size_t count = opcode - op::kTuple1 + 1u;
      for (size_t i = count; i-- > 0;) items[i] = Pop();
      Push(builder_.Tuple({items, count}));
      return true;
    }
    case op::kEmptySet:
      Push(Value::Of(Value::kOpaque));
      return true;
    case op::kAddItems:
      TakeMarked();
      Top();
      return true;
    case op::kFrozenSet:
      TakeMarked();
      Push(Value::Of(Value::kOpaque));
      return true;
    default:
      return false;
  }
}

bool Unpickler::StepScalar(uint8_t opcode) {
  switch (opcode) {
    case op::kProto:
      protocol_ = static_cast<int>(TakeInt(1));
      if (protocol_ > 5) Fail(fmt::format("pickle protocol {} is not known", protocol_));
      return true;
    case op::kFrame:
      TakeInt(8);  // its length is a hint for readers of streams
      return true;
    case op::kPop:
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.resize(marks_.size() - 1);
      } else {
        Pop();
      }
      return true;
    case op::kPopMark:
      TakeMarked();
      return true;
    case op::kDup:
      Push(Value(Top()));
      return true;
    case op::kNone:
      Push(Value::Of(Value::kNone));
      return true;
    case op::kNewTrue:
    case op::kNewFalse: {
      Value value = Value::Int(opcode == op::kNewTrue);
      value.kind = Value::kBool;
      Push(value);
      return true;
    }
    case op::kBinInt1:
      Push(Value::Int(static_cast<int64_t>(TakeInt(1))));
      return true;
    case op::kBinInt2:
      Push(Value::Int(static_cast<int64_t>(TakeInt(2))));
      return true;
    case op::kBinInt:
      Push(Value::Int(static_cast<int32_t>(TakeInt(4))));
      return true;
    case op::kLong1:
      PushLong(TakeInt(1));
      return true;
    case op::kLong4:
      PushLong(TakeInt(4));
      return true;
    case op::kBinFloat: {
      uint64_t bits = __builtin_bswap64(TakeInt(8));
      Value value = Value::Of(Value::kFloat);
      std::memcpy(&value.real, &bits, 8);
      Push(value);
      return true;
    }
    case op::kShortBinUnicode:
    case op::kShortBinString:
      PushString(TakeInt(1));
      return true;
    case op::kBinUnicode:
    case op::kBinString:
      PushString(TakeInt(4));
      return true;
    case op::kBinUnicode8:
      PushString(TakeInt(8));
      return true;
    case op::kShortBinBytes:
      Take(TakeInt(1));
      Push(Value::Of(Value::kOpaque));
      return true;
    case op::kBinBytes:
      Take(TakeInt(4));
      Push(Value::Of(Value::kOpaque));
      return true;
    case op::kBinBytes8:
    case op::kByteArray8:
      Take(TakeInt(8));
      Push(Value::Of(Value::kOpaque));
      return true;
    case op::kBinPut:
      Memoize(TakeInt(1));
      return true;
    case op::kLongBinPut:
      Memoize(TakeInt(4));
      return true;
    case op::kMemoize:
      Memoize(memo_.size());
      return true;
    case op::kBinGet:
      PushMemo(TakeInt(1));
      return true;
    case op::kLongBinGet:
      PushMemo(TakeInt(4));
      return true;
    default:
      return false;
  }
}

}  // namespace lowtide::snapshot
