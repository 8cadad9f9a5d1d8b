#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lowtide::checkpoint {

// How a write ended. `error` is 0 or an errno; `stage` is the call that failed ("open", "write", "fdatasync", ...).
struct WriteResult {
  int error = 0;
  const char* stage = "";
  bool direct = false;  // went past the page cache
};

struct WriteOptions {
  int threads = 4;      // writes in flight
  bool direct = true;   // O_DIRECT where the file system takes it
  bool sync = true;     // fdatasync the file, fsync its folder
};

// Puts `bytes` at `image` (aligned to 4096, readable up to the next multiple of 4096) into `folder`/`name`, in one step:
// written to `folder`/`temporary`, made durable, renamed, the folder made durable. On failure the temporary file is
// removed and an older `name` is as it was. Never throws, takes no lock, and touches no Python object.
WriteResult WriteFile(const std::string& folder, const std::string& temporary, const std::string& name, const void* image,
                      size_t bytes, const WriteOptions& options) noexcept;

// fsync of a folder: renames and removals in it are durable after that.
WriteResult SyncFolder(const std::string& folder) noexcept;

// Memory of whole pages, touched so that nothing is allocated later; huge pages where there are some. nullptr on failure.
void* AllocateStaging(size_t bytes) noexcept;
void FreeStaging(void* memory, size_t bytes) noexcept;

}  // namespace lowtide::checkpoint
