#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace lowtide {
namespace {

[[noreturn]] void Fail(const std::string& path, const char* what) {
  int error = errno;
  std::string remedy = error == ENOENT   ? "check the path"
                       : error == EACCES ? "check the file's permissions"
                       : error == ENOSPC ? "free some space, or name another folder with -o"
                       : error == EROFS  ? "the file system is read-only: name another folder with -o"
                                         : "";
  throw Error(fmt::format("cannot {}: {}", what, std::strerror(error)), remedy, path);
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd > 2) ::close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) Fail(path, "open");
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) Fail(path, "stat");
  if (S_ISDIR(info.st_mode)) throw Error("is a folder, not a file", "name a file", path);
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) Fail(path, "map");
  data_ = static_cast<const uint8_t*>(data);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

std::string ReadFile(const std::string& path) {
  Descriptor file{path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) Fail(path, "open");
  std::string content;
  struct stat info {};
  if (::fstat(file.fd, &info) == 0 && info.st_size > 0) content.reserve(static_cast<size_t>(info.st_size));
  char buffer[1 << 16];
  for (;;) {
    ssize_t got = ::read(file.fd, buffer, sizeof buffer);
    if (got == 0) return content;
    if (got < 0) {
      if (errno == EINTR) continue;
      Fail(path, "read");
    }
    content.append(buffer, static_cast<size_t>(got));
  }
}

void WriteFileAtomically(const std::string& path, std::string_view content) {
  std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  {
    Descriptor file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    if (file.fd < 0) Fail(path, "write");
    while (!content.empty()) {
      ssize_t put = ::write(file.fd, content.data(), content.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        int error = errno;
        ::unlink(temporary.c_str());
        errno = error;
        Fail(path, "write");
      }
      content.remove_prefix(static_cast<size_t>(put));
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    int error = errno;
    ::unlink(temporary.c_str());
    errno = error;
    Fail(path, "write");
  }
}

}  // namespace lowtide
