#pragma once

#include <cstddef>
#include <cstdint>

#include "record/ring_format.h"
#include "record/series_writer.h"

namespace lowtide::record {

// Entries per section. The file's size follows from them: 5 MB with these.
struct RingSizes {
  uint32_t steps = 16384, devices = 8192, workers = 4096, marks = 4096, events = 512;
  uint32_t series = 2048, device_series = 256, worker_table = 256, looks = 2048;
};

// Writes one ring file. Nothing here throws, prints or allocates after Create; every failure is a return value.
// Steps and devices are written by one thread at a time, marks and events by any.
class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  // Makes `path` (which must not exist), fills it with posix_fallocate so that a disk that fills up later cannot
  // kill the writer, and maps it. Returns 0 or an errno; after a failure no file is left.
  int Create(const char* path, const RingSizes& sizes) noexcept;
  // The same without a file: for a process that has nowhere to write. Returns 0 or an errno.
  int CreateAnonymous(const RingSizes& sizes) noexcept;
  // Gives the anonymous ring a file, as Create does: its content moves there, its address stays. What other threads
  // count in the moment of the move is lost. Returns 0 or an errno; after a failure it is anonymous as before.
  int Materialise(const char* path) noexcept;
  // Forgets the mapping without unmapping it: other threads may still count in it.
  void Abandon() noexcept;

  bool open() const noexcept { return base_ != nullptr; }
  FileHeader* header() const noexcept { return reinterpret_cast<FileHeader*>(base_); }
  LedgerShard* shards() const noexcept { return At<LedgerShard>(kShards); }
  LedgerShard* pools() const noexcept { return At<LedgerShard>(kPools); }
  WorkerEntry* worker_table() const noexcept { return At<WorkerEntry>(kWorkerTable); }
  uint32_t worker_table_size() const noexcept { return header()->sections[kWorkerTable].count; }

  void Write(const StepRecord& record) noexcept;     // also into the whole-run series
  void Write(const DeviceRecord& record) noexcept;   // the same
  void Write(const WorkerRecord& record) noexcept;
  void Write(const MarkRecord& record) noexcept;
  void Write(const EventRecord& record) noexcept;
  void Write(const LookRecord& record) noexcept;
  // The header is complete: from now on readers may believe it.
  void Publish() noexcept;

 private:
  void Lay(const RingSizes& sizes) noexcept;
  void Touch() const noexcept;
  static int MakeFile(const char* path, uint64_t bytes, int* fd) noexcept;
  template <typename T>
  T* At(SectionId id) const noexcept {
    return reinterpret_cast<T*>(base_ + header()->sections[id].offset);
  }
  template <typename Record>
  void Append(SectionId id, const Record& record) noexcept;

  uint8_t* base_ = nullptr;
  SeriesWriter<SeriesRecord> series_;
  SeriesWriter<DeviceSeriesRecord> device_series_[kMaxDevices];
};

// Bytes that a file of these sizes takes.
uint64_t RingFileBytes(const RingSizes& sizes) noexcept;

}  // namespace lowtide::record
