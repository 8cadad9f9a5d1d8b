// Dicts that are an event, a frame, a block, a segment or an annotation become their record.
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "snapshot/builder.h"
#include "snapshot/hash.h"

namespace lowtide::snapshot {
namespace {

static_assert(kKnownCount <= 64, "keys are counted as bits");
constexpr uint64_t kUnknownAddress = std::numeric_limits<uint64_t>::max();

uint64_t Bit(uint32_t key) { return key < kKnownCount ? uint64_t{1} << key : 0; }

uint32_t KeyOf(const Value& key) { return key.kind == Value::kString ? key.id : uint32_t{kNothing}; }

}  // namespace

Value Builder::Convert(Pairs pairs) {
  uint64_t keys = 0;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) keys |= Bit(KeyOf(pairs[i]));
  auto has = [&](std::initializer_list<uint32_t> wanted) {
    return std::all_of(wanted.begin(), wanted.end(), [&](uint32_t key) { return keys & Bit(key); });
  };
  if (has({kAction})) return ConvertEvent(pairs);
  if (has({kFilename}) || has({kName, kLine})) return ConvertFrame(pairs);
  if (has({kState, kSize})) return ConvertBlock(pairs);
  if (has({kTotalSize, kBlocks}) || has({kSegmentType, kBlocks})) return ConvertSegment(pairs);
  if (has({kStage, kName})) return ConvertAnnotation(pairs);
  return {};
}

Value Builder::ConvertFrame(Pairs pairs) {
  Frame frame;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const Value& value = pairs[i + 1];
    switch (KeyOf(pairs[i])) {
      case kName:
        if (value.kind == Value::kString) frame.name = value.id;
        break;
      case kFilename:
        if (value.kind == Value::kString) frame.file = value.id;
        break;
      case kLine:
        frame.line = static_cast<int32_t>(ToInt(value, "line"));
        break;
      case kFxNodeName:
        if (value.kind == Value::kString) frame.fx = value.id;
        break;
    }
  }
  return Value::Of(Value::kFrame, snapshot_.names.FrameId(frame));
}

uint32_t Builder::ContextId(const Context& context) {
  auto& contexts = snapshot_.contexts;
  if (contexts[last_context_] == context) return last_context_;
  uint64_t hash = HashInteger(static_cast<uint64_t>(context.stream), HashSeed());
  hash = HashInteger(hash ^ (static_cast<uint64_t>(context.compile_context) << 32 | context.user_metadata),
                     hash);
  hash = HashInteger(hash ^ static_cast<uint64_t>(context.pool.first), hash + context.has_pool);
  hash = HashInteger(hash ^ static_cast<uint64_t>(context.pool.second), hash);
  auto [begin, end] = context_ids_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (contexts[it->second] == context) return last_context_ = it->second;
  }
  if (context == Context{}) return last_context_ = 0;
  contexts.push_back(context);
  last_context_ = static_cast<uint32_t>(contexts.size() - 1);
  context_ids_.emplace(hash, last_context_);
  return last_context_;
}

Value Builder::ConvertEvent(Pairs pairs) {
  Event event;
  Context context;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const Value& value = pairs[i + 1];
    const uint32_t key = KeyOf(pairs[i]);
    event_keys |= Bit(key);
    switch (key) {
      case kAction:
        if (value.kind == Value::kString && value.id >= kAlloc && value.id <= kWorkspaceSnapshot) {
          event.set_action(static_cast<Action>(value.id - kAlloc));
        }
        break;
      case kAddr:
      case kDeviceFree:
        event.address = static_cast<uint64_t>(ToInt(value, "addr"));
        event.flags |= Event::kHasAddress;
        break;
      case kSize:
        event.size = static_cast<uint64_t>(ToInt(value, "size"));
        break;
      case kStream:
        context.stream = ToInt(value, "stream");
        break;
      case kTimeUs:
        event.time_us = ToInt(value, "time_us");
        event.flags |= Event::kHasTime;
        break;
      case kCompileContext:
        if (value.kind == Value::kString && value.id != kNotApplicable) context.compile_context = value.id;
        break;
      case kUserMetadata:
        if (value.kind == Value::kString) context.user_metadata = value.id;
        break;
      case kPoolId:
        context.pool = ToPool(value);
        context.has_pool = true;
        break;
      case kFrames: {
        bool empty = false;
        event.stack = StackOr0(value, &empty);
        if (empty) event.flags |= Event::kEmptyStack;
        break;
      }
    }
  }
  event.context = ContextId(context);
  snapshot_.events.push_back(event);
  return Value::Of(Value::kEvents, static_cast<uint32_t>(snapshot_.events.size() - 1));
}

// torch 2.0 and before: a list, newest first, of {addr, real_size, frames}.
StackId Builder::HistoryStack(const Value& history) {
  Pairs items = Items(history);
  if (items.empty()) return 0;
  const Value* frames = Find(DictItems(items[0]), kFrames);
  return frames ? StackOr0(*frames) : 0;
}

Value Builder::ConvertBlock(Pairs pairs) {
  Block block;
  block.address = kUnknownAddress;
  bool has_requested = false;
  StackId from_history = 0;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const Value& value = pairs[i + 1];
    const uint32_t key = KeyOf(pairs[i]);
    block_keys |= Bit(key);
    switch (key) {
      case kAddress:
        block.address = static_cast<uint64_t>(ToInt(value, "address"));
        break;
      case kSize:
        block.size = static_cast<uint64_t>(ToInt(value, "size"));
        break;
      case kRequestedSize:
        block.requested = static_cast<uint64_t>(ToInt(value, "requested_size"));
        has_requested = true;
        break;
      case kState:
        block.state = value.kind != Value::kString || value.id == kInactive ? Block::kInactive
                      : value.id == kActiveAllocated                        ? Block::kAllocated
                                                                            : Block::kPendingFree;
        break;
      case kFrames:
        block.stack = StackOr0(value);
        break;
      case kHistory:
        from_history = HistoryStack(value);
        break;
    }
  }
  if (!has_requested) block.requested = block.size;
  if (!block.stack) block.stack = from_history;
  snapshot_.blocks.push_back(block);
  return Value::Of(Value::kBlocks, static_cast<uint32_t>(snapshot_.blocks.size() - 1));
}

void Builder::SetSegmentField(Segment& segment, uint32_t key, const Value& value) {
  auto bytes = [&](const char* what) { return static_cast<uint64_t>(ToInt(value, what)); };
  switch (key) {
    case kDevice: {
      const int64_t device = ToInt(value, "device");
      if (device < -1 || device > 1 << 16) Fail(fmt::format("device {} does not exist", device));
      segment.device = static_cast<int>(device);
      break;
    }
    case kAddress:
      segment.address = bytes("address");
      break;
    case kTotalSize:
      segment.total_size = bytes("total_size");
      break;
    case kAllocatedSize:
      segment.allocated_size = bytes("allocated_size");
      break;
    case kActiveSize:
      segment.active_size = bytes("active_size");
      break;
    case kRequestedSize:
      segment.requested_size = bytes("requested_size");
      break;
    case kStream:
      segment.stream = ToInt(value, "stream");
      break;
    case kSegmentType:
      segment.large = !(value.kind == Value::kString && value.id == kSmall);
      break;
    case kSegmentPoolId:
      segment.pool = ToPool(value);
      break;
    case kIsExpandable:
      segment.expandable = ToInt(value, "is_expandable") != 0;
      break;
    case kFrames:
      segment.stack = StackOr0(value);
      break;
    case kBlocks:
      AdoptBlocks(segment, value);
      break;
  }
}

void Builder::AdoptBlocks(Segment& segment, const Value& list) {
  if (list.kind == Value::kEmptyList) return;
  if (list.kind != Value::kList) Fail("'blocks' is not a list");
  auto& blocks = snapshot_.blocks;
  // Copied, since converting below may add nodes and move them.
  const std::vector<Value> items = nodes_[list.id].items;
  auto convert = [&](const Value& item) { return item.kind == Value::kDict ? ConvertCopy(item) : item; };
  if (items.size() == 1 && items[0].kind == Value::kBlocks) {
    adopted_blocks_ += items[0].count;
    if (adopted_blocks_ > MostShared(blocks.size())) Fail("many segments share their blocks");
    segment.first_block = items[0].id;
    segment.block_count = items[0].count;
    return;
  }
  std::vector<Block> copy;
  for (const Value& item : items) {
    const Value run = convert(item);
    if (run.kind != Value::kBlocks) Fail("an entry of 'blocks' is not a block");
    for (uint32_t i = 0; i < run.count; ++i) copy.push_back(blocks[run.id + i]);
    node_bytes_ += run.count * sizeof(Block);
    CheckBudget(0);
  }
  adopted_blocks_ += copy.size();
  segment.first_block = static_cast<uint32_t>(blocks.size());
  segment.block_count = static_cast<uint32_t>(copy.size());
  blocks.append(copy.data(), copy.size());
}

Value Builder::ConvertSegment(Pairs pairs) {
  Segment segment;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const uint32_t key = KeyOf(pairs[i]);
    segment_keys |= Bit(key);
    SetSegmentField(segment, key, pairs[i + 1]);
  }
  uint64_t address = segment.address;
  for (uint32_t i = 0; i < segment.block_count; ++i) {
    Block& block = snapshot_.blocks[segment.first_block + i];
    if (block.address == kUnknownAddress) block.address = address;
    address = block.address + block.size;
  }
  segments_.push_back(segment);
  return Value::Of(Value::kSegments, static_cast<uint32_t>(segments_.size() - 1));
}

Value Builder::ConvertAnnotation(Pairs pairs) {
  Annotation annotation;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const Value& value = pairs[i + 1];
    switch (KeyOf(pairs[i])) {
      case kStage:
        annotation.start = value.kind == Value::kString && value.id == kStart;
        break;
      case kName:
        if (value.kind == Value::kString) annotation.name = value.id;
        break;
      case kDevice:
        annotation.device = static_cast<int>(ToInt(value, "device"));
        break;
      case kTimeUs:
        annotation.time_us = ToInt(value, "time_us");
        break;
    }
  }
  snapshot_.annotations.push_back(annotation);
  return Value::Of(Value::kAnnotations, static_cast<uint32_t>(snapshot_.annotations.size() - 1));
}

}  // namespace lowtide::snapshot
