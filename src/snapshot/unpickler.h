#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "snapshot/builder.h"
#include "snapshot/pod_vector.h"

namespace lowtide::snapshot {

// Bytes to read, and whether they are a mapped file whose pages may be dropped once read.
struct Source {
  std::span<const uint8_t> bytes;
  bool mapped = false;
};

// A memo entry in 32 bits: kind in the upper 5, id below. 0 is unset.
namespace memo {
constexpr uint32_t kIdBits = 27;
constexpr uint32_t kMostIds = uint32_t{1} << kIdBits;
inline uint32_t Pack(Value::Kind kind, uint32_t id) { return static_cast<uint32_t>(kind) << kIdBits | id; }
inline Value::Kind Kind(uint32_t entry) { return static_cast<Value::Kind>(entry >> kIdBits); }
inline uint32_t Id(uint32_t entry) { return entry & (kMostIds - 1); }
}  // namespace memo

class EventRun;

// Executes the opcodes of a pickle that only make data (protocols 2 to 5) and hands lists and dicts to a
// Builder. Every opcode that could import or call anything is refused by name and offset: nothing of a file
// is ever run. Throws Error.
class Unpickler {
 public:
  Unpickler(Source source, Builder& builder, unsigned threads);
  ~Unpickler();

  // The top object.
  Value Load();

 private:
  [[noreturn]] void Fail(const std::string& what) const;
  [[noreturn]] void Refuse(uint8_t opcode, size_t at) const;

  // One opcode; false at STOP.
  bool Step();
  bool StepContainer(uint8_t opcode);
  bool StepScalar(uint8_t opcode);
  const uint8_t* Take(uint64_t count);
  uint64_t TakeInt(int bytes);
  void PushLong(uint64_t size);
  void PushString(uint64_t size);

  void Push(const Value& value);
  Value Pop();
  Value& Top();
  // The values above the last mark; drops the mark. They stay valid until the next push.
  std::span<const Value> TakeMarked();
  void Memoize(uint64_t index);
  void SyncMemo(const Value& value);
  void PushMemo(uint64_t index);
  void CheckDepth();

  // The fast paths.
  bool TryReferenceRun();
  bool ReferenceStack(size_t begin, size_t end, StackId* stack);
  void TryEvents();
  bool InsideTrace() const;
  void AdoptRun(EventRun& run);
  void ParseEventsUpTo(size_t stop);
  void StartWorkers();
  size_t GuessEventStart(size_t from) const;

  Source source_;
  Builder& builder_;
  unsigned threads_;
  size_t pos_ = 0, released_ = 0, next_check_ = 0;
  int protocol_ = -1;
  PodVector<uint32_t> memo_;
  PodVector<Value> stack_;
  PodVector<uint32_t> marks_;
  struct RunEntry {
    std::string bytes;
    StackId stack;
  };
  std::unordered_multimap<uint64_t, RunEntry>
      runs_;  // raw bytes of a run of memo references -> the stack they make
  uint64_t run_bytes_ = 0;
  std::unique_ptr<EventRun> events_;
  struct Worker;
  std::vector<std::unique_ptr<Worker>> workers_;
  size_t retry_events_at_ = 0;
  int worker_starts_ = 0;
};

}  // namespace lowtide::snapshot
