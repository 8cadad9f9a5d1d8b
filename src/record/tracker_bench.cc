// What the hooks cost: an allocation and its release through them, against the allocator alone, in one run.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "record/recorder.h"
#include "lowtide/record/ring_writer.h"
#include "lowtide/record/slot.h"
#include "record/tracker.h"

namespace lowtide::record {
namespace {

void* PlainAlloc(size_t bytes) {
  void* block = nullptr;
  return ::posix_memalign(&block, 64, bytes) == 0 ? block : nullptr;
}
void PlainFree(void* block) { std::free(block); }

RingWriter& SharedRing() {
  static RingWriter ring;
  if (!ring.open()) ring.CreateAnonymous(RingSizes());
  return ring;
}

void Plain(benchmark::State& state) {
  for (auto _ : state) {
    void* block = PlainAlloc(static_cast<size_t>(state.range(0)));
    benchmark::DoNotOptimize(block);
    PlainFree(block);
  }
}
BENCHMARK(Plain)->Arg(256)->Arg(16384);

void Hooked(benchmark::State& state) {
  testing::UseAllocator(&SharedRing(), &PlainAlloc, &PlainFree, state.range(1) != 0);
  for (auto _ : state) {
    void* block = testing::HookedAlloc(static_cast<size_t>(state.range(0)));
    benchmark::DoNotOptimize(block);
    testing::HookedFree(block);
  }
}
BENCHMARK(Hooked)->Args({256, 0})->Args({16384, 0})->Args({256, 1})->ArgNames({"bytes", "table"});

void DeviceReport(benchmark::State& state) {
  testing::UseAllocator(&SharedRing(), &PlainAlloc, &PlainFree, false);
  void* block = reinterpret_cast<void*>(0x7f0000000200);
  for (auto _ : state) {
    testing::HookedReport(block, 512, 512, 4096, 1, 0);
    testing::HookedReport(block, -512, 0, 4096, 1, 0);
  }
}
BENCHMARK(DeviceReport);

void Slots(benchmark::State& state) {
  static Slot<StepRecord> slots[1024];
  StepRecord record{};
  uint64_t number = 0;
  for (auto _ : state) {
    record.step = ++number;
    WriteSlot(&slots[number % 1024], number, kSteps, record);
  }
}
BENCHMARK(Slots);

void RingStep(benchmark::State& state) {
  static RingWriter ring;
  if (!ring.open()) ring.CreateAnonymous(RingSizes());
  StepRecord record{};
  for (auto _ : state) {
    ++record.step;
    ring.Write(record);
  }
}
BENCHMARK(RingStep);

void RecorderStep(benchmark::State& state) {
  Recorder& recorder = Recorder::Get();
  recorder.Start({});
  for (int i = 0; i < 200000; ++i) recorder.Step(StepSource::kUser);  // the samplers' credit is used up
  for (auto _ : state) recorder.Step(StepSource::kUser);
}
BENCHMARK(RecorderStep);

}  // namespace
}  // namespace lowtide::record
