#include "snapshot/builder.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace lowtide::snapshot {
namespace {

bool IsRun(const Value& value) { return value.kind >= Value::kEvents && value.kind <= Value::kAnnotations; }

uint32_t KeyOf(const Value& key) { return key.kind == Value::kString ? key.id : uint32_t{kNothing}; }

}  // namespace

Builder::Builder(Snapshot& snapshot, uint64_t budget) : snapshot_(snapshot), budget_(budget) {
#define X(id, text) snapshot_.names.String(text);
  LOWTIDE_KNOWN_STRINGS(X)
#undef X
  context_ids_.emplace(0, 0);
}

void Builder::Fail(const std::string& what) const {
  throw Error(what,
              "the file is damaged or is not a CUDA memory snapshot; write it again with "
              "torch.cuda.memory._dump_snapshot()",
              snapshot_.file, offset);
}

uint64_t Builder::memory() const {
  return snapshot_.events.size() * sizeof(Event) + snapshot_.blocks.size() * sizeof(Block) +
         segments_.size() * sizeof(Segment) + snapshot_.annotations.size() * sizeof(Annotation) +
         snapshot_.contexts.size() * (sizeof(Context) + 64) + node_bytes_ + pairs_.size() * 16 +
         snapshot_.names.memory();
}

void Builder::CheckBudget(uint64_t outside) {
  if (memory() + outside <= budget_) return;
  throw Error(
      fmt::format("reading it would take more than {} of memory, which no real snapshot of this size does",
                  FormatBytes(static_cast<double>(budget_))),
      "the file is damaged or was made to exhaust memory; do not trust it", snapshot_.file, offset);
}

Builder::Pairs Builder::Items(const Value& list) const {
  if (list.kind == Value::kList) return nodes_[list.id].items;
  return {};
}

Builder::Pairs Builder::DictItems(const Value& dict) const {
  if (dict.kind == Value::kDict) return nodes_[dict.id].items;
  return {};
}

bool Builder::EndsInEvents(const Value& list) const {
  Pairs items = Items(list);
  return !items.empty() && items.back().kind == Value::kEvents;
}

const Value* Builder::Find(Pairs pairs, uint32_t key) const {
  constexpr size_t kMost =
      512;  // no dict of a snapshot has more keys; a hostile one must not cost a scan each time
  for (size_t i = 0; i + 1 < pairs.size() && i < kMost; i += 2) {
    if (KeyOf(pairs[i]) == key) return &pairs[i + 1];
  }
  return nullptr;
}

int64_t Builder::ToInt(const Value& value, const char* what) const {
  switch (value.kind) {
    case Value::kInt:
    case Value::kBool:
      return value.integer;
    case Value::kNone:
      return 0;
    case Value::kFloat:
      if (value.real >= -9e18 && value.real <= 9e18) return static_cast<int64_t>(value.real);
      [[fallthrough]];
    default:
      Fail(fmt::format("'{}' is not a number", what));
  }
}

std::string Builder::Text(const Value& value) const {
  switch (value.kind) {
    case Value::kString:
      return std::string(snapshot_.names.text(value.id));
    case Value::kInt:
      return std::to_string(value.integer);
    case Value::kBool:
      return value.integer ? "true" : "false";
    case Value::kFloat:
      return fmt::format("{}", value.real);
    default:
      return {};
  }
}

std::pair<int64_t, int64_t> Builder::ToPool(const Value& value) const {
  if (value.kind == Value::kPair) return pairs_[value.id];
  Pairs items = Items(value);
  if (items.size() == 2 && items[0].kind == Value::kInt && items[1].kind == Value::kInt) {
    return {items[0].integer, items[1].integer};
  }
  return {0, 0};
}

void Builder::SetItems(Value& dict, Pairs pairs) {
  if (dict.kind == Value::kEmptyDict) {
    Value record = Convert(pairs);
    if (record.kind != Value::kUnset) {
      record.memo = dict.memo;
      dict = record;
      return;
    }
    const uint32_t memo = dict.memo;
    dict = Value::Of(Value::kDict, static_cast<uint32_t>(nodes_.size()));
    dict.memo = memo;
    nodes_.emplace_back();
    node_bytes_ += sizeof(Node) + 32;
  }
  if (dict.kind != Value::kDict) Fail("a key is set on something that is not a plain dict");
  auto& items = nodes_[dict.id].items;
  items.insert(items.end(), pairs.begin(), pairs.end());
  node_bytes_ += pairs.size() * sizeof(Value) * 2;
}

void Builder::Append(Value& list, Pairs items) {
  if (items.empty()) return;
  if (list.kind == Value::kEmptyList) {
    const uint32_t memo = list.memo;
    const bool frames =
        std::all_of(items.begin(), items.end(), [](const Value& v) { return v.kind == Value::kFrame; });
    if (frames) {
      std::vector<uint32_t> ids(items.size());
      std::transform(items.begin(), items.end(), ids.begin(), [](const Value& v) { return v.id; });
      list = Value::Of(Value::kStack, snapshot_.names.Stack(ids));
      list.memo = memo;
      return;
    }
    list = Value::Of(Value::kList, static_cast<uint32_t>(nodes_.size()));
    list.memo = memo;
    nodes_.emplace_back();
    node_bytes_ += sizeof(Node) + 32;
  } else if (list.kind == Value::kStack) {  // a stack of more than one batch: open it again
    Value open = Value::Of(Value::kList, static_cast<uint32_t>(nodes_.size()));
    open.memo = list.memo;
    nodes_.emplace_back();
    for (uint32_t frame : snapshot_.names.stack(list.id)) {
      nodes_.back().items.push_back(Value::Of(Value::kFrame, frame));
    }
    node_bytes_ += sizeof(Node) + 32 + nodes_.back().items.size() * sizeof(Value) * 2;
    list = open;
  }
  if (list.kind != Value::kList) Fail("items are appended to something that is not a list");
  Node& node = nodes_[list.id];
  node.stack = -1;
  for (const Value& item : items) {
    Value* last = node.items.empty() ? nullptr : &node.items.back();
    if (last && IsRun(item) && last->kind == item.kind && last->id + last->count == item.id) {
      last->count += item.count;
    } else {
      node.items.push_back(item);
      node_bytes_ += sizeof(Value) * 2;
    }
  }
}

// The few pools there are come first; a file with many different pairs just keeps them all.
uint32_t Builder::PairId(std::pair<int64_t, int64_t> pair) {
  for (size_t i = 0; i < pairs_.size() && i < 16; ++i) {
    if (pairs_[i] == pair) return static_cast<uint32_t>(i);
  }
  pairs_.push_back(pair);
  return static_cast<uint32_t>(pairs_.size() - 1);
}

Value Builder::Tuple(Pairs items) {
  if (items.empty()) return Value::Of(Value::kEmptyList);
  if (items.size() == 2 && items[0].kind == Value::kInt && items[1].kind == Value::kInt) {
    return Value::Of(Value::kPair, PairId({items[0].integer, items[1].integer}));
  }
  Value list = Value::Of(Value::kEmptyList);
  Append(list, items);
  return list;
}

bool Builder::ToStack(const Value& value, StackId* stack, bool* empty_list) {
  if (empty_list) *empty_list = value.kind == Value::kEmptyList;
  *stack = 0;
  switch (value.kind) {
    case Value::kStack:
      *stack = value.id;
      return true;
    case Value::kNone:
    case Value::kEmptyList:
      return true;
    case Value::kList:
      break;
    default:
      return false;
  }
  if (nodes_[value.id].stack < 0) {
    std::vector<uint32_t> ids;
    const std::vector<Value> items = nodes_[value.id].items;
    for (const Value& item : items) {
      Value frame = item.kind == Value::kDict ? ConvertCopy(item) : item;
      if (frame.kind != Value::kFrame) return false;
      ids.push_back(frame.id);
    }
    nodes_[value.id].stack = snapshot_.names.Stack(ids);
  }
  *stack = static_cast<StackId>(nodes_[value.id].stack);
  return true;
}

StackId Builder::StackOr0(const Value& value, bool* empty_list) {
  StackId stack = 0;
  if (!ToStack(value, &stack, empty_list)) Fail("'frames' is not a list of stack frames");
  return stack;
}

}  // namespace lowtide::snapshot
