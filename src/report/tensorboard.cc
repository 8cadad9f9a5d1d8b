#include "report/tensorboard.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "lowtide/crc32c.h"
#include "base/error.h"

namespace lowtide::report {
namespace {

static_assert(std::endian::native == std::endian::little,
              "fixed-width fields are copied as they lie in memory");

template <typename T>
void AddFixed(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void AddVarint(std::string& out, uint64_t value) {
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  out += static_cast<char>(value);
}

// Wire types of protocol buffers: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
void AddKey(std::string& out, int field, int wire) {
  AddVarint(out, static_cast<uint64_t>(field << 3 | wire));
}

void AddBytes(std::string& out, int field, std::string_view bytes) {
  AddKey(out, field, 2);
  AddVarint(out, bytes.size());
  out += bytes;
}

// A checksum beside the data that it is of would be one of itself: TFRecord turns it and adds a constant.
uint32_t Masked(std::string_view data) {
  return std::rotr(Crc32c(0, data.data(), data.size()), 15) + 0xA282EAD8u;
}

constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5;  // Event
constexpr int kValue = 1;                                                // Summary
constexpr int kTag = 1, kSimpleValue = 2;                                // Summary.Value

std::string EventAt(double wall_time) {
  std::string event;
  AddKey(event, kWallTime, 1);
  AddFixed(event, wall_time);
  return event;
}

}  // namespace

std::string TfRecord(std::string_view payload) {
  std::string length, record;
  AddFixed(length, static_cast<uint64_t>(payload.size()));
  record = length;
  AddFixed(record, Masked(length));
  record += payload;
  AddFixed(record, Masked(payload));
  return record;
}

std::string EventVersion(double wall_time) {
  std::string event = EventAt(wall_time);
  AddBytes(event, kFileVersion, "brain.Event:2");
  return event;
}

std::string EventScalars(double wall_time, int64_t step, const std::vector<Scalar>& scalars) {
  std::string event = EventAt(wall_time), summary;
  AddKey(event, kStep, 0);
  AddVarint(event, static_cast<uint64_t>(step));
  for (const Scalar& scalar : scalars) {
    std::string value;
    AddBytes(value, kTag, scalar.tag);
    AddKey(value, kSimpleValue, 5);
    AddFixed(value, static_cast<float>(scalar.value));
    AddBytes(summary, kValue, value);
  }
  AddBytes(event, kSummary, summary);
  return event;
}

EventFile::EventFile(const std::string& path, double wall_time) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw Error(fmt::format("cannot write the event file: {}", std::strerror(errno)),
                "name a folder that you may write with --tensorboard", path);
  }
  pending_ = TfRecord(EventVersion(wall_time));
}

EventFile::~EventFile() {
  if (fd_ >= 0) ::close(fd_);
}

void EventFile::Add(double wall_time, int64_t step, const std::vector<Scalar>& scalars) {
  pending_ += TfRecord(EventScalars(wall_time, step, scalars));
}

void EventFile::Flush() {
  size_t done = 0;
  while (done < pending_.size()) {
    ssize_t written = ::write(fd_, pending_.data() + done, pending_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      int failure = errno;
      pending_.erase(0, done);
      throw Error(fmt::format("cannot write the event file: {}", std::strerror(failure)),
                  "make room on its disk", path_);
    }
    done += static_cast<size_t>(written);
  }
  pending_.clear();
}

}  // namespace lowtide::report
