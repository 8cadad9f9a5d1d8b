#include "snapshot/peak.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace lowtide::snapshot {
namespace {

// A block that lived through fewer events than this part of the trace is short-lived: within one operator or
// two.
constexpr int64_t kShortLife = 64;  // events

Categorized WithoutStack(const LiveBlock& block, const Lifetimes& lifetimes, uint32_t freed_traits) {
  if (block.alloc_event < 0) {
    if (freed_traits & CallSite::kZeroGrad)
      return {Category::kGradients, "freed by zero_grad; its allocation is older than the trace"};
    return {Category::kUnknown, "allocated before recording began, no stack"};
  }
  const bool autograd = lifetimes.events[static_cast<size_t>(block.alloc_event)].flags & Event::kEmptyStack;
  if (freed_traits & CallSite::kZeroGrad) return {Category::kGradients, "freed by zero_grad"};
  if (autograd) {
    if (block.free_event >= 0 && block.free_event - block.alloc_event <= kShortLife) {
      return {Category::kTemporaries, "allocated without a Python frame (autograd thread), freed at once"};
    }
    return {Category::kUnknown, "allocated without a Python frame (probably the autograd thread)"};
  }
  return {Category::kUnknown, "no stack was recorded"};
}

}  // namespace

const char* CategoryName(Category category) {
  static constexpr const char* kNames[] = {"parameters",  "gradients",     "optimizer_state", "activations",
                                           "temporaries", "communication", "unknown"};
  return kNames[static_cast<int>(category)];
}

Categorized Categorize(const LiveBlock& block, const Lifetimes& lifetimes, CallSites& sites) {
  uint32_t freed_traits = 0;
  bool freed_in_autograd = false;
  if (block.free_event >= 0) {
    const Event& free = lifetimes.events[static_cast<size_t>(block.free_event)];
    freed_traits = sites.Of(free.stack).traits;
    freed_in_autograd = free.flags & Event::kEmptyStack || freed_traits & CallSite::kBackward;
  }
  if (!block.stack) return WithoutStack(block, lifetimes, freed_traits);
  const uint32_t traits = sites.Of(block.stack).traits;
  const bool kept = block.free_event < 0;
  const bool brief = block.alloc_event >= 0 && !kept && block.free_event - block.alloc_event <= kShortLife;
  if (traits & CallSite::kOptimizer) {
    if (kept) return {Category::kOptimizerState, "allocated in the optimizer's step and never freed"};
    return {Category::kTemporaries, "allocated in the optimizer's step and freed again"};
  }
  if (traits & CallSite::kAccumulate) return {Category::kGradients, "allocated by AccumulateGrad"};
  if (freed_traits & CallSite::kZeroGrad) return {Category::kGradients, "freed by zero_grad"};
  if (traits & CallSite::kBackward && !(traits & CallSite::kForward)) {
    if (brief || freed_in_autograd) return {Category::kTemporaries, "allocated and freed in backward"};
    return {Category::kGradients, "allocated in backward and kept after it"};
  }
  if (traits & CallSite::kCommunication && !(traits & CallSite::kForward))
    return {Category::kCommunication, "allocated in torch.distributed"};
  if (traits & CallSite::kInit && kept && !(traits & CallSite::kForward)) {
    return {Category::kParameters, "allocated while the model was built, loaded or moved, and never freed"};
  }
  if (traits & CallSite::kForward) {
    if (freed_in_autograd && !brief)
      return {Category::kActivations, "allocated in forward and freed in backward"};
    if (brief) return {Category::kTemporaries, "allocated and freed in forward"};
    return {Category::kActivations, kept ? "allocated in forward, still held when the snapshot was taken"
                                         : "allocated in forward and outlived its operator"};
  }
  if (brief) return {Category::kTemporaries, "freed soon after"};
  if (freed_in_autograd) return {Category::kActivations, "freed in backward"};
  return {Category::kUnknown, "its stack passes through neither a module, backward nor an optimizer"};
}

namespace {

std::vector<Share> Sorted(std::vector<Share> shares) {
  std::stable_sort(shares.begin(), shares.end(),
                   [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
  return shares;
}

void Add(Share& share, const LiveBlock& block) {
  share.bytes += block.bytes;
  ++share.blocks;
  share.largest_block = std::max(share.largest_block, block.bytes);
}

std::string NoStackLabel(const LiveBlock& block, const Lifetimes& lifetimes) {
  if (block.alloc_event < 0) return "unattributed: allocated before recording began";
  if (lifetimes.events[static_cast<size_t>(block.alloc_event)].flags & Event::kEmptyStack) {
    return "unattributed: no Python frame (autograd thread)";
  }
  return "unattributed: no stack recorded";
}

}  // namespace

Holders SumHolders(const std::vector<LiveBlock>& alive, const Lifetimes& lifetimes, CallSites& sites) {
  Holders out;
  std::map<std::tuple<StackId, std::string, Category>, Share> by_stack;
  std::map<std::string, Share> by_line, by_category;
  for (const LiveBlock& block : alive) {
    out.bytes += block.bytes;
    const Categorized categorized = Categorize(block, lifetimes, sites);
    const CallSite& site = sites.Of(block.stack);
    const std::string label = block.stack ? site.label : NoStackLabel(block, lifetimes);
    Share& stack = by_stack[{block.stack, block.stack ? std::string() : label, categorized.category}];
    Share& line = by_line[block.stack && site.line ? fmt::format("{}:{}", site.file, site.line) : label];
    for (Share* share : {&stack, &line}) {
      if (share->blocks == 0) {
        share->stack = block.stack;
        share->label = label;
        share->file = site.file;
        share->line = site.line;
        share->function = site.function;
        share->category = categorized.category;
        share->how = categorized.how;
      }
      Add(*share, block);
    }
    Share& category = by_category[CategoryName(categorized.category)];
    category.label = CategoryName(categorized.category);
    category.category = categorized.category;
    if (block.bytes > category.largest_block) category.how = categorized.how;
    Add(category, block);
  }
  auto values = [](auto& map) {
    std::vector<Share> shares;
    for (auto& [key, share] : map) shares.push_back(std::move(share));
    return Sorted(std::move(shares));
  };
  out.by_stack = values(by_stack);
  for (Share& share : out.by_stack) {
    const CallSite& site = sites.Of(share.stack);
    share.detail = site.via.empty() || site.op.empty() ? site.via + site.op : site.via + ", " + site.op;
  }
  out.by_line = values(by_line);
  out.by_category = values(by_category);
  return out;
}

}  // namespace lowtide::snapshot
