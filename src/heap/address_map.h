#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <unordered_map>
#include <vector>

#include "heap/array.h"
#include "heap/graph.h"

namespace lowtide::heap {

// Address -> node. A page of 64 KiB has one u32 for every 16 bytes, since that is how allocators align; pages
// hang on a two-level directory. What is not so aligned, or lies outside the 47 bits of user space, goes into
// a hash table.
class AddressMap {
 public:
  AddressMap() : top_(static_cast<Folder**>(std::calloc(kFolders, sizeof(Folder*)))) {
    if (!top_) throw std::bad_alloc();
  }
  ~AddressMap() { Clear(); }
  AddressMap(const AddressMap&) = delete;
  AddressMap& operator=(const AddressMap&) = delete;

  NodeId Find(uint64_t address) const {
    if (address & 15 || address >> 47) {
      const auto found = odd_.find(address);
      return found == odd_.end() ? kNone : found->second;
    }
    const Folder* folder = top_[address >> 30];
    const NodeId* page = folder ? folder->pages[address >> 16 & 0x3fff] : nullptr;
    return page ? page[address >> 4 & 0xfff] - 1 : kNone;
  }

  // Puts `node` at `address` unless a node stands there already; returns the one that stands there now.
  NodeId Insert(uint64_t address, NodeId node) {
    if (address & 15 || address >> 47) return odd_.try_emplace(address, node).first->second;
    Folder*& folder = top_[address >> 30];
    if (!folder) {
      folder = static_cast<Folder*>(FromChunk(sizeof(Folder)));
    }
    NodeId*& page = folder->pages[address >> 16 & 0x3fff];
    if (!page) page = static_cast<NodeId*>(FromChunk(sizeof(NodeId) << 12));
    NodeId& entry = page[address >> 4 & 0xfff];
    if (!entry) entry = node + 1;
    return entry - 1;
  }

  // Forgets everything and gives the memory back.
  void Clear() {
    for (void* chunk : chunks_) munmap(chunk, kHugePage);
    chunks_.clear();
    left_ = 0;
    std::free(top_);
    top_ = nullptr;
    odd_.clear();
  }

  // After Clear(): the same addresses anew.
  void Fill(const Array<uint64_t>& addresses) {
    Clear();
    top_ = static_cast<Folder**>(std::calloc(kFolders, sizeof(Folder*)));
    if (!top_) throw std::bad_alloc();
    for (NodeId v = 0; v < addresses.size(); ++v) Insert(addresses[v], v);
  }

  uint64_t bytes() const { return chunks_.size() * kHugePage; }

 private:
  struct Folder {
    std::array<NodeId*, 1 << 14> pages;
  };

  // Zeroed; folders and pages are powers of two that divide a chunk.
  void* FromChunk(size_t bytes) {
    if (left_ < bytes) {
      chunks_.reserve(chunks_.size() + 1);
      chunks_.push_back(MapHuge(kHugePage));
      left_ = kHugePage;
    }
    left_ -= bytes;
    return static_cast<char*>(chunks_.back()) + left_;
  }

  static constexpr size_t kFolders = 1 << 17;

  Folder** top_;  // 1 MiB, of which only touched pages are in memory
  std::vector<void*> chunks_;
  size_t left_ = 0;  // in the last of them
  std::unordered_map<uint64_t, NodeId> odd_;
};

}  // namespace lowtide::heap
