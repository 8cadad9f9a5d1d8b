#include "lint/arena.h"

#include <tree_sitter/api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace lowtide::lint {
namespace {

// Every block is preceded by its size and where it came from, so that realloc and free know.
struct alignas(16) Header {
  size_t size;
  bool from_arena;
};

struct Arena {
  std::vector<std::unique_ptr<char[]>> chunks;
  char* at = nullptr;
  size_t left = 0;
  size_t first_size = 0;
  bool on = false;
};

thread_local Arena arena;
constexpr size_t kChunk = 256 << 10;

void* Allocate(size_t size) {
  size_t whole = (sizeof(Header) + size + 15) & ~size_t{15};
  if (whole < size) return nullptr;
  char* block;
  if (arena.on) {
    if (whole > arena.left) {
      size_t chunk = std::max(whole, kChunk);
      arena.chunks.emplace_back(new (std::nothrow) char[chunk]);
      arena.at = arena.chunks.back().get();
      arena.left = chunk;
      if (arena.chunks.size() == 1) arena.first_size = chunk;
      if (!arena.at) std::abort();
    }
    block = arena.at;
    arena.at += whole;
    arena.left -= whole;
  } else {
    block = static_cast<char*>(std::malloc(whole));
    if (!block) std::abort();  // as tree-sitter itself does
  }
  *reinterpret_cast<Header*>(block) = {size, arena.on};
  return block + sizeof(Header);
}

void* AllocateZeroed(size_t count, size_t size) {
  if (size && count > SIZE_MAX / size) std::abort();
  void* block = Allocate(count * size);
  std::memset(block, 0, count * size);
  return block;
}

Header* HeaderOf(void* block) { return reinterpret_cast<Header*>(static_cast<char*>(block) - sizeof(Header)); }

void Free(void* block) {
  if (block && !HeaderOf(block)->from_arena) std::free(HeaderOf(block));
}

void* Reallocate(void* block, size_t size) {
  if (!block) return Allocate(size);
  if (HeaderOf(block)->from_arena && size <= HeaderOf(block)->size) return block;
  void* moved = Allocate(size);
  std::memcpy(moved, block, std::min(size, HeaderOf(block)->size));
  Free(block);
  return moved;
}

}  // namespace

ParseArena::ParseArena(bool on) {
  static const bool installed = [] {
    ts_set_allocator(Allocate, AllocateZeroed, Reallocate, Free);
    return true;
  }();
  (void)installed;
  arena.on = on;
}

ParseArena::~ParseArena() {
  arena.on = false;
  if (arena.chunks.empty()) return;
  // The first chunk is kept for the next file, unless one huge block made it larger than usual.
  bool keep = arena.first_size == kChunk;
  if (arena.chunks.size() > 1) arena.chunks.resize(1);
  if (!keep) arena.chunks.clear();
  arena.at = keep ? arena.chunks[0].get() : nullptr;
  arena.left = keep ? kChunk : 0;
  if (!keep) arena.first_size = 0;
}

}  // namespace lowtide::lint
