// TensorBoard's event files: TFRecords of Event messages
// (tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lowtide::report {

struct Scalar {
  std::string tag;   // UTF-8
  double value = 0;  // written in single precision, which is all that TensorBoard's scalars have
};

// One TFRecord: length, its masked CRC-32C, `payload`, its masked CRC-32C.
std::string TfRecord(std::string_view payload);

// The first record's payload, then one per step. `wall_time` is in seconds since 1970.
std::string EventVersion(double wall_time);
std::string EventScalars(double wall_time, int64_t step, const std::vector<Scalar>& scalars);

// A file that grows by whole records, so that a reader meanwhile sees no damaged one but the one under the
// pen.
class EventFile {
 public:
  // Makes `path`; throws Error when it cannot.
  EventFile(const std::string& path, double wall_time);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void Add(double wall_time, int64_t step, const std::vector<Scalar>& scalars);
  // Writes out what was added; throws Error.
  void Flush();

 private:
  std::string path_, pending_;
  int fd_ = -1;
};

}  // namespace lowtide::report
