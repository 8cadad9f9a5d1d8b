#include "lint/lsp_transport.h"

#include <fmt/core.h>
#include <poll.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace lowtide::lint {

bool LspStream::Fill() {
  char chunk[1 << 16];
  for (;;) {
    ssize_t got = ::read(in_, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    buffer_.append(chunk, static_cast<size_t>(got));
    return true;
  }
}

std::optional<size_t> LspStream::HeaderLength(size_t header_end) const {
  static constexpr char kName[] = "content-length:";
  for (size_t at = 0; at < header_end;) {
    size_t end = std::min(buffer_.find('\n', at), header_end);
    if (end - at > sizeof kName - 1 && ::strncasecmp(buffer_.data() + at, kName, sizeof kName - 1) == 0) {
      size_t from = buffer_.find_first_not_of(" \t", at + sizeof kName - 1);
      size_t value = 0;
      auto [stop, error] = std::from_chars(buffer_.data() + from, buffer_.data() + end, value);
      bool clean = error == std::errc() && (stop == buffer_.data() + end || *stop == '\r' || *stop == ' ');
      if (clean) return value;
      return std::nullopt;
    }
    at = end + 1;
  }
  return std::nullopt;
}

LspStream::Event LspStream::Read(std::string& body) {
  size_t header_end, separator = 4;
  while ((header_end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (size_t bare = buffer_.find("\n\n"); bare != std::string::npos) {
      header_end = bare, separator = 2;
      break;
    }
    if (buffer_.size() > kMostHeader) {
      // No header is that long: look for the next one behind it.
      size_t next = buffer_.find("Content-Length:", 1);
      buffer_.erase(0, next == std::string::npos ? buffer_.size() - 16 : next);
      return Event::kBroken;
    }
    if (!Fill()) return Event::kEnd;
  }
  auto length = HeaderLength(header_end);
  if (!length) {
    // Rubbish before a good header: only the rubbish is passed over.
    size_t header = buffer_.rfind("Content-Length:", header_end);
    bool behind_rubbish = header != std::string::npos && header > 0;
    buffer_.erase(0, behind_rubbish ? header : header_end + separator);
    return Event::kBroken;
  }
  buffer_.erase(0, header_end + separator);
  if (*length > kMostBody) {
    for (size_t left = *length; left > 0;) {
      size_t take = std::min(left, buffer_.size());
      buffer_.erase(0, take);
      left -= take;
      if (left > 0 && !Fill()) return Event::kEnd;
    }
    return Event::kBroken;
  }
  while (buffer_.size() < *length) {
    if (!Fill()) return Event::kEnd;
  }
  body = buffer_.substr(0, *length);
  buffer_.erase(0, *length);
  return Event::kMessage;
}

bool LspStream::HasMore() const {
  if (!buffer_.empty()) return true;
  pollfd poll{in_, POLLIN, 0};
  return ::poll(&poll, 1, 0) > 0;
}

bool LspStream::Write(const std::string& body) {
  std::string message = fmt::format("Content-Length: {}\r\n\r\n{}", body.size(), body);
  for (size_t at = 0; at < message.size();) {
    ssize_t put = ::write(out_, message.data() + at, message.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += static_cast<size_t>(put);
  }
  return true;
}

}  // namespace lowtide::lint
