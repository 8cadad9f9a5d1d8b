#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <thread>
#include <vector>

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

// ---- implementation ----

namespace writer_internal {

inline constexpr size_t kPage = 4096;
inline constexpr size_t kPiece = 4u << 20;  // bytes per write call

inline size_t RoundUp(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

inline int WriteAll(int fd, const char* data, size_t bytes, off_t offset) noexcept {
  while (bytes) {
    const ssize_t put = ::pwrite(fd, data, bytes, offset);
    if (put < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (put == 0) return ENOSPC;
    data += put;
    offset += put;
    bytes -= static_cast<size_t>(put);
  }
  return 0;
}

// Pieces are taken from a counter; the first error stops all.
inline int WritePieces(int fd, const char* data, size_t bytes, int threads) noexcept {
  std::atomic<size_t> next{0};
  std::atomic<int> error{0};
  auto work = [&]() noexcept {
    for (;;) {
      const size_t at = next.fetch_add(kPiece, std::memory_order_relaxed);
      if (at >= bytes || error.load(std::memory_order_relaxed)) return;
      const int failed = WriteAll(fd, data + at, std::min(kPiece, bytes - at), static_cast<off_t>(at));
      if (failed) error.store(failed);
    }
  };
  std::vector<std::thread> helpers;
  const size_t wanted = std::min<size_t>(static_cast<size_t>(std::max(threads, 1)), bytes / kPiece + 1);
  try {
    for (size_t i = 1; i < wanted; ++i) helpers.emplace_back(work);
  } catch (...) {  // no more threads to be had: those there are, and this one, do all
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  return error.load();
}

struct Closer {
  int fd;
  ~Closer() {
    if (fd >= 0) ::close(fd);
  }
};

inline WriteResult WriteTemporary(const std::string& path, const void* image, size_t bytes, const WriteOptions& options) noexcept {
  WriteResult result;
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
  Closer file{options.direct ? ::open(path.c_str(), flags | O_DIRECT, 0666) : -1};
  result.direct = file.fd >= 0;
  if (file.fd < 0) file.fd = ::open(path.c_str(), flags, 0666);
  if (file.fd < 0) return {errno, "open", false};
  // The blocks first: a full disk is known before anything is written, and the file is laid out in one piece.
  const size_t padded = RoundUp(bytes);
  const int reserved = ::fallocate(file.fd, 0, 0, static_cast<off_t>(padded));
  if (reserved != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) return {errno, "fallocate", result.direct};
  const char* data = static_cast<const char*>(image);
  int error = WritePieces(file.fd, data, result.direct ? padded : bytes, options.threads);
  if (error == EINVAL && result.direct) {  // the file system took the flag and refuses the writes
    result.direct = false;
    if (::fcntl(file.fd, F_SETFL, 0) != 0) return {errno, "fcntl", false};
    error = WritePieces(file.fd, data, bytes, options.threads);
  }
  if (error) return {error, "write", result.direct};
  if (::ftruncate(file.fd, static_cast<off_t>(bytes)) != 0) return {errno, "ftruncate", result.direct};
  // A failed sync is a failed save: the kernel may have dropped the pages, a second try would report success
  // (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
  if (options.sync && ::fdatasync(file.fd) != 0) return {errno, "fdatasync", result.direct};
  const int fd = file.fd;
  file.fd = -1;
  if (::close(fd) != 0 && errno != EINTR) return {errno, "close", result.direct};
  return result;
}

}  // namespace writer_internal

inline WriteResult SyncFolder(const std::string& folder) noexcept {
  writer_internal::Closer file{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (file.fd < 0) return {errno, "open folder", false};
  if (::fsync(file.fd) != 0 && errno != EINVAL) return {errno, "fsync folder", false};
  return {};
}

inline WriteResult WriteFile(const std::string& folder, const std::string& temporary, const std::string& name, const void* image,
                      size_t bytes, const WriteOptions& options) noexcept try {
  const std::string from = folder + "/" + temporary, to = folder + "/" + name;
  WriteResult result = writer_internal::WriteTemporary(from, image, bytes, options);
  if (!result.error && ::rename(from.c_str(), to.c_str()) != 0) {
    // A network file system may repeat a rename that succeeded and then report that the source is gone.
    if (errno != ENOENT || ::access(to.c_str(), F_OK) != 0) result.error = errno, result.stage = "rename";
  }
  if (result.error) {
    const int error = result.error;
    ::unlink(from.c_str());
    result.error = error;
    return result;
  }
  if (options.sync) {
    const WriteResult folder_result = SyncFolder(folder);
    if (folder_result.error) return {folder_result.error, folder_result.stage, result.direct};
  }
  return result;
} catch (const std::bad_alloc&) {
  return {ENOMEM, "allocate", false};
}

inline void* AllocateStaging(size_t bytes) noexcept {
  const size_t padded = writer_internal::RoundUp(std::max<size_t>(bytes, 1));
  void* memory = ::mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  ::madvise(memory, padded, MADV_HUGEPAGE);
  ::madvise(memory, padded, MADV_DONTFORK);  // DataLoader workers and censuses need no copy of it
#ifdef MADV_POPULATE_WRITE
  if (::madvise(memory, padded, MADV_POPULATE_WRITE) == 0) return memory;
  if (errno != EINVAL) {
    ::munmap(memory, padded);
    return nullptr;
  }
#endif
  for (size_t at = 0; at < padded; at += writer_internal::kPage) static_cast<volatile char*>(memory)[at] = 0;
  return memory;
}

inline void FreeStaging(void* memory, size_t bytes) noexcept {
  if (memory) ::munmap(memory, writer_internal::RoundUp(std::max<size_t>(bytes, 1)));
}

}  // namespace lowtide::checkpoint
