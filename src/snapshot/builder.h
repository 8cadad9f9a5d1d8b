#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "snapshot/known.h"
#include "snapshot/model.h"

namespace lowtide::snapshot {

// One datum while a snapshot is read. Dicts that look like an event, a frame, a block, a segment or an
// annotation are turned into their record as soon as they are filled; a list of frames becomes a stack id.
// The rest are plain nodes.
struct Value {
  enum Kind : uint8_t {
    kUnset,
    kNone,
    kMark,
    kBool,
    kInt,  // two's complement; values of 2^63 and more keep their bits
    kFloat,
    kOpaque,  // data that a snapshot has no use for
    kString,
    kFrame,
    kStack,
    kEvents,  // a run of records: id of the first, and count
    kBlocks,
    kSegments,
    kAnnotations,
    kList,  // a node
    kDict,  // a node of keys and values in turn
    kPair,  // index into pairs
    kEmptyList,
    kEmptyDict,
  };
  static constexpr uint32_t kNoMemo = 0xffffffff;

  Kind kind = kUnset;
  uint32_t memo = kNoMemo;  // where the memo keeps the same object
  union {
    int64_t integer = 0;
    double real;
    struct {
      uint32_t id, count;
    };
  };

  static Value Of(Kind kind, uint32_t id = 0, uint32_t count = 1) {
    Value value;
    value.kind = kind;
    value.id = id;
    value.count = count;
    return value;
  }
  static Value Int(int64_t integer) {
    Value value;
    value.kind = kInt;
    value.integer = integer;
    return value;
  }
};
static_assert(sizeof(Value) == 16);

// Makes a Snapshot out of lists and dicts, whatever file format they come from. Throws Error when the data
// does not have the shape of a snapshot, or asks for more memory than `budget` bytes.
class Builder {
 public:
  Builder(Snapshot& snapshot, uint64_t budget);

  // dict[key] = value for each pair; `dict` changes its kind when it turns out to be a record.
  void SetItems(Value& dict, std::span<const Value> pairs);
  void Append(Value& list, std::span<const Value> items);
  Value Tuple(std::span<const Value> items);
  Value String(std::string_view text) { return Value::Of(Value::kString, snapshot_.names.String(text)); }
  // The stack of a list of frames; false when `value` is no such list.
  bool ToStack(const Value& value, StackId* stack, bool* empty_list);
  uint32_t ContextId(const Context& context);
  uint32_t PairId(std::pair<int64_t, int64_t> pair);
  std::pair<int64_t, int64_t> PairOf(uint32_t id) const {
    return id < pairs_.size() ? pairs_[id] : std::pair<int64_t, int64_t>{0, 0};
  }
  void Finish(const Value& top);

  // Adds `bytes` held outside (operand stack, memo) to the count; throws when the budget is spent.
  void CheckBudget(uint64_t outside);
  uint64_t memory() const;
  uint64_t budget() const { return budget_; }
  const std::string& snapshot_file() const { return snapshot_.file; }
  // Whether `list` is a node whose last item is an event.
  bool EndsInEvents(const Value& list) const;

  uint64_t offset = 0;  // of the opcode being executed, for messages
  // Keys seen, by record, as bits 1 << Known: what the file's family is told by.
  uint64_t event_keys = 0, block_keys = 0, segment_keys = 0;
  Snapshot& snapshot() { return snapshot_; }

 private:
  struct Node {
    std::vector<Value> items;
    int64_t stack = -1;  // of a list of frames, once asked for
  };
  using Pairs = std::span<const Value>;

  [[noreturn]] void Fail(const std::string& what) const;
  void WantList(const Value& value, const char* what) const;
  // The record that `pairs` make, or kUnset.
  Value Convert(Pairs pairs);
  Value ConvertCopy(const Value& dict);
  Value ConvertFrame(Pairs pairs);
  Value ConvertEvent(Pairs pairs);
  Value ConvertBlock(Pairs pairs);
  Value ConvertSegment(Pairs pairs);
  Value ConvertAnnotation(Pairs pairs);
  void SetSegmentField(Segment& segment, uint32_t key, const Value& value);
  void AdoptBlocks(Segment& segment, const Value& blocks);
  StackId HistoryStack(const Value& history);

  // The items of a list or tuple; runs are not split.
  Pairs Items(const Value& list) const;
  Pairs DictItems(const Value& dict) const;
  const Value* Find(Pairs pairs, uint32_t key) const;
  int64_t ToInt(const Value& value, const char* what) const;
  StackId StackOr0(const Value& value, bool* empty_list = nullptr);
  std::pair<int64_t, int64_t> ToPool(const Value& value) const;
  std::string Text(const Value& value) const;

  void FinishSegments(const Value& list, std::vector<Segment>& out);
  void FinishTraces(const Value& list, std::vector<DeviceTrace>& out);
  DeviceTrace Gather(int device, const Value& list);
  void FinishAnnotations(const Value& list);
  void FinishSettings(const Value& dict);
  void FinishSources(const Value& dict);

  Snapshot& snapshot_;
  uint64_t budget_;
  std::vector<Node> nodes_;
  std::vector<std::pair<int64_t, int64_t>> pairs_;
  std::unordered_multimap<uint64_t, uint32_t> context_ids_;
  uint32_t last_context_ = 0;
  uint64_t node_bytes_ = 0;
  std::vector<Segment> segments_;
  // PyTorch shares no block or event between owners. A little is let pass; more would cost the square of the
  // file.
  static uint64_t MostShared(uint64_t there) { return 4 * there + 4096; }
  uint64_t adopted_blocks_ = 0, gathered_events_ = 0;
};

}  // namespace lowtide::snapshot
