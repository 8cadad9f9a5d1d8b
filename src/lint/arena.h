#pragma once

namespace lowtide::lint {

// While one lives, what tree-sitter allocates on this thread comes from a bump allocator that never frees, and is given
// back as a whole at the end: a parse makes many small nodes and drops them all at once. Not to be nested. With `on`
// false it only makes sure that this allocator is in place: every parse of the process must have seen one first.
class ParseArena {
 public:
  explicit ParseArena(bool on);
  ~ParseArena();
  ParseArena(const ParseArena&) = delete;
  ParseArena& operator=(const ParseArena&) = delete;
};

}  // namespace lowtide::lint
