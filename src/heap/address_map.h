#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "heap/graph.h"

namespace lowtide::heap {

// Address -> node. A page of 1 MiB has one u32 for every 16 bytes, since that is how allocators align; pages hang on
// a two-level directory. What is not so aligned, or lies outside the 47 bits of user space, goes into a hash table.
class AddressMap {
 public:
  NodeId Find(uint64_t address) const {
    if (address & 15 || address >> 47) {
      const auto found = odd_.find(address);
      return found == odd_.end() ? kNone : found->second;
    }
    const Folder* folder = top_[address >> 34].get();
    const NodeId* page = folder ? (*folder)[address >> 20 & 0x3fff].get() : nullptr;
    return page ? page[address >> 4 & 0xffff] - 1 : kNone;
  }

  // Puts `node` at `address` unless a node stands there already; returns the one that stands there now.
  NodeId Insert(uint64_t address, NodeId node) {
    if (address & 15 || address >> 47) return odd_.try_emplace(address, node).first->second;
    std::unique_ptr<Folder>& folder = top_[address >> 34];
    if (!folder) folder.reset(new Folder());
    std::unique_ptr<NodeId[]>& page = (*folder)[address >> 20 & 0x3fff];
    if (!page) {
      page.reset(new NodeId[1 << 16]());
      ++pages_;
    }
    NodeId& entry = page[address >> 4 & 0xffff];
    if (!entry) entry = node + 1;
    return entry - 1;
  }

  uint64_t bytes() const { return pages_ * (sizeof(NodeId) << 16); }

 private:
  using Folder = std::array<std::unique_ptr<NodeId[]>, 1 << 14>;
  std::array<std::unique_ptr<Folder>, 1 << 13> top_;
  std::unordered_map<uint64_t, NodeId> odd_;
  uint64_t pages_ = 0;
};

}  // namespace lowtide::heap
