#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <unordered_map>
#include <vector>

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
  ~AddressMap() { std::free(top_); }
  AddressMap(const AddressMap&) = delete;
  AddressMap& operator=(const AddressMap&) = delete;

  NodeId Find(uint64_t address) const {
    if (address & 15 || address >> 47) {
      const auto found = odd_.find(address);
      return found == odd_.end() ? kNone : found->second;
    }
    const Folder* folder = top_[address >> 30];
    const NodeId* page = folder ? folder->pages[address >> 16 & 0x3fff].get() : nullptr;
    return page ? page[address >> 4 & 0xfff] - 1 : kNone;
  }

  // Puts `node` at `address` unless a node stands there already; returns the one that stands there now.
  NodeId Insert(uint64_t address, NodeId node) {
    if (address & 15 || address >> 47) return odd_.try_emplace(address, node).first->second;
    Folder*& folder = top_[address >> 30];
    if (!folder) {
      folder = new Folder{{}, used_.release()};
      used_.reset(folder);
      bytes_ += sizeof(Folder);
    }
    std::unique_ptr<NodeId[]>& page = folder->pages[address >> 16 & 0x3fff];
    if (!page) {
      page.reset(new NodeId[1 << 12]());
      bytes_ += sizeof(NodeId) << 12;
    }
    NodeId& entry = page[address >> 4 & 0xfff];
    if (!entry) entry = node + 1;
    return entry - 1;
  }

  // Forgets everything and gives the memory back.
  void Clear() {
    used_.reset();
    std::free(top_);
    top_ = nullptr;
    odd_.clear();
    bytes_ = 0;
  }

  // After Clear(): the same addresses anew.
  void Fill(const std::vector<uint64_t>& addresses) {
    Clear();
    top_ = static_cast<Folder**>(std::calloc(kFolders, sizeof(Folder*)));
    if (!top_) throw std::bad_alloc();
    for (NodeId v = 0; v < addresses.size(); ++v) Insert(addresses[v], v);
  }

  uint64_t bytes() const { return bytes_; }

 private:
  struct Folder {
    std::array<std::unique_ptr<NodeId[]>, 1 << 14> pages;
    Folder* next;  // all folders, to delete them by
  };
  struct DeleteAll {
    void operator()(Folder* folder) const {
      while (folder) {
        Folder* next = folder->next;
        delete folder;
        folder = next;
      }
    }
  };
  static constexpr size_t kFolders = 1 << 17;

  Folder** top_;  // 1 MiB, of which only touched pages are in memory
  std::unique_ptr<Folder, DeleteAll> used_;
  std::unordered_map<uint64_t, NodeId> odd_;
  uint64_t bytes_ = 0;
};

}  // namespace lowtide::heap
