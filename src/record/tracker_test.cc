// Against libraries that stand in for libc10 and its callers (tests/standin): each test runs in a child of its own,
// since hooks are never taken out again.
#include "record/tracker.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "record/nvml.h"

namespace lowtide::record {
namespace {

std::string StandIn(const char* name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "standin" / name).string();
}

struct Functions {
  void* (*direct_alloc)(size_t);
  void (*direct_free)(void*);
  void (*(*direct_deleter)())(void*);
  int64_t (*direct_alloc_throws)(size_t);
  void (*device_malloc)(void*, int64_t, int);
  void (*device_free)(void*, int64_t, int);
  void (*device_oom)(int64_t, int);
  void (*map_shared)(void*, int64_t);
  void* (*default_allocate)(size_t);
  void (*default_free)(void*);
  int64_t* reports_seen;
};

template <typename Function>
void Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) ::_exit(90);
}

Functions Load() {
  void* c10 = ::dlopen(StandIn("libstandin_c10.so").c_str(), RTLD_LAZY | RTLD_GLOBAL);
  void* device = ::dlopen(StandIn("libstandin_device.so").c_str(), RTLD_LAZY);
  if (c10 == nullptr || device == nullptr) ::_exit(91);
  Functions f{};
  Find(device, "direct_alloc", f.direct_alloc);
  Find(device, "direct_free", f.direct_free);
  Find(device, "direct_deleter", f.direct_deleter);
  Find(device, "direct_alloc_throws", f.direct_alloc_throws);
  Find(device, "device_malloc", f.device_malloc);
  Find(device, "device_free", f.device_free);
  Find(device, "device_oom", f.device_oom);
  Find(device, "map_shared", f.map_shared);
  Find(c10, "_ZN3c1016default_allocateEm", f.default_allocate);
  Find(c10, "_ZN3c1012default_freeEPv", f.default_free);
  Find(c10, "_ZN3c1012reports_seenE", f.reports_seen);
  return f;
}

// Runs `body` in a child; true when every check in it held.
bool InChild(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status)) ADD_FAILURE() << "child ended by signal " << WTERMSIG(status);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#define CHECK_THAT(condition) \
  if (!(condition)) return std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), false

bool Begin(RingWriter& ring, bool table = false, TrackerReport* report = nullptr) {
  CHECK_THAT(ring.CreateAnonymous(RingSizes()) == 0);
  const TrackerReport made = StartTracker(&ring, "libstandin_c10.so", table);
  if (report != nullptr) *report = made;
  return true;
}

bool Exact(bool table) {
  const Functions f = Load();
  void* old = f.direct_alloc(5000);  // made before the hook
  static RingWriter ring;
  TrackerReport report;
  CHECK_THAT(Begin(ring, table, &report));
  CHECK_THAT((report.capabilities & kCapAllocCpu) && (report.capabilities & kCapFreeCpu));
  CHECK_THAT(((report.capabilities & kCapTrailer) != 0) == !table);
  CHECK_THAT(ReadCpu().bytes == 0);
  std::mt19937_64 random(1);
  std::vector<std::pair<void*, size_t>> blocks;
  int64_t alive = 0;
  for (int i = 0; i < 200000; ++i) {
    if (blocks.size() < 50 || random() % 2) {
      const size_t size = random() % 100 == 0 ? random() % 5000000 : random() % 5000;
      void* block = random() % 2 ? f.direct_alloc(size) : f.default_allocate(size);
      if (size != 0) std::memset(block, 0xA5, size);  // the whole block is the user's
      blocks.emplace_back(block, size);
      alive += static_cast<int64_t>(size);
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const auto [block, size] = blocks.back();
      random() % 3 == 0 ? f.direct_deleter()(block) : random() % 2 ? f.direct_free(block) : f.default_free(block);
      blocks.pop_back();
      alive -= static_cast<int64_t>(size);
    }
    if (i % 1000 == 0) CHECK_THAT(ReadCpu().bytes == alive);
  }
  CHECK_THAT(ReadCpu().bytes == alive);
  CHECK_THAT(ring.header()->counters.foreign_frees == 0);
  f.direct_free(old);
  CHECK_THAT(ReadCpu().bytes == alive);
  CHECK_THAT(ring.header()->counters.foreign_frees == 1);
  return true;
}

TEST(Tracker, CountsEveryByteBehindTheBlocks) { EXPECT_TRUE(InChild([] { return Exact(false); })); }
TEST(Tracker, CountsEveryByteInTheTable) { EXPECT_TRUE(InChild([] { return Exact(true); })); }

TEST(Tracker, BlocksFreedByOtherThreadsAreCountedOnce) {
  EXPECT_TRUE(InChild([] {
    const Functions f = Load();
    static RingWriter ring;
    CHECK_THAT(Begin(ring));
    for (int round = 0; round < 20; ++round) {
      std::vector<void*> blocks(40 * 100);
      std::vector<std::thread> threads;
      for (size_t t = 0; t < 40; ++t) {  // more threads than shards
        threads.emplace_back([&, t] {
          for (size_t i = 0; i < 100; ++i) blocks[t * 100 + i] = f.direct_alloc(64 + i);
        });
      }
      for (std::thread& thread : threads) thread.join();
      threads.clear();
      CHECK_THAT(ReadCpu().blocks == 4000);
      for (size_t t = 0; t < 40; ++t) {
        threads.emplace_back([&, t] {
          for (size_t i = 0; i < 100; ++i) f.direct_free(blocks[i * 40 + t]);
        });
      }
      for (std::thread& thread : threads) thread.join();
      CHECK_THAT(ReadCpu().bytes == 0 && ReadCpu().blocks == 0);
    }
    CHECK_THAT(ring.header()->counters.foreign_frees == 0);
    return true;
  }));
}

TEST(Tracker, ThePeakIsTheHighestSinceTheStepBefore) {
  EXPECT_TRUE(InChild([] {
    const Functions f = Load();
    static RingWriter ring;
    CHECK_THAT(Begin(ring));
    void* kept = f.direct_alloc(1000);
    SetClock(1, Phase::kStep);
    f.direct_free(f.direct_alloc(500000));
    CHECK_THAT(ReadCpu().bytes == 1000 && ReadCpu().peak == 501000);
    SetClock(2, Phase::kStep);
    f.direct_free(f.direct_alloc(10));
    CHECK_THAT(ReadCpu().peak == 1010);
    f.direct_free(kept);
    return true;
  }));
}

TEST(Tracker, DevicesAndSharedMemoryAreToldByTheReport) {
  EXPECT_TRUE(InChild([] {
    const Functions f = Load();
    static RingWriter ring;
    TrackerReport report;
    CHECK_THAT(Begin(ring, false, &report));
    CHECK_THAT((report.capabilities & kCapReport) && (report.capabilities & kCapDeviceReport));
    auto at = [](uintptr_t number) { return reinterpret_cast<void*>(0x7f0000000000 + number * 512); };
    for (uintptr_t i = 0; i < 1000; ++i) {
      SetClock(i, i % 10 == 0 ? Phase::kValidation : Phase::kStep);
      f.device_malloc(at(i), 2048, i % 2);
      f.device_malloc(at(100000 + i), 1 << 20, 0);
      f.device_free(at(100000 + i), 1 << 20, 0);
    }
    DeviceFigures device;
    CHECK_THAT(ReadDevice(0, &device) && device.allocated == 500 * 2048 && device.blocks == 500);
    CHECK_THAT(device.peak == 500 * 2048 + (1 << 20));
    CHECK_THAT(device.reserved >= 1 << 20);
    CHECK_THAT(ReadDevice(1, &device) && device.allocated == 500 * 2048);
    CHECK_THAT(!ReadDevice(2, &device));
    const LedgerShard& cuda0 = ring.pools()[1];
    int64_t validation = 0;
    for (const LedgerCell& cell : cuda0.cells[1]) validation += cell.bytes;
    CHECK_THAT(validation == 100 * 2048);
    f.map_shared(at(7), 4096);
    CHECK_THAT(ReadSharedTensorBytes() == 4096);
    f.map_shared(at(7), -4096);
    CHECK_THAT(ReadSharedTensorBytes() == 0);
    static int told = 0;
    SetOomCallback([](int type, int index, int64_t asked, int64_t, int64_t) { told += type == 1 && index == 1 && asked == 99; });
    f.device_oom(99, 1);
    CHECK_THAT(told == 1);
    CHECK_THAT(ReadDevice(1, &device) && device.ooms == 1);
    // The profiler's own account of cpu blocks, inside libc10, passes by.
    const int64_t before = *f.reports_seen;
    f.default_free(f.default_allocate(100));
    CHECK_THAT(*f.reports_seen == before + 1);
    CHECK_THAT(ReadCpu().bytes == 0 && ring.header()->counters.foreign_frees == 0);
    return true;
  }));
}

TEST(Tracker, AnAllocatorThatThrowsIsLeftAlone) {
  EXPECT_TRUE(InChild([] {
    const Functions f = Load();
    static RingWriter ring;
    CHECK_THAT(Begin(ring));
    CHECK_THAT(f.direct_alloc_throws(1ull << 50) == 1);
    CHECK_THAT(f.direct_alloc_throws(SIZE_MAX) == 1);
    CHECK_THAT(f.direct_alloc_throws(100) == 0);
    CHECK_THAT(ReadCpu().bytes == 0 && ReadCpu().blocks == 0);
    return true;
  }));
}

TEST(Tracker, AForkedChildCountsFromNothing) {
  EXPECT_TRUE(InChild([] {
    const Functions f = Load();
    static RingWriter ring, childs;
    CHECK_THAT(Begin(ring));
    void* parents = f.direct_alloc(1000);
    const bool child_held = InChild([&] {
      CHECK_THAT(childs.CreateAnonymous(RingSizes()) == 0);
      RestartTrackerInChild(&childs);
      CHECK_THAT(ReadCpu().bytes == 0);
      void* own = f.direct_alloc(77);
      f.direct_free(parents);
      CHECK_THAT(ReadCpu().bytes == 77);
      f.direct_free(own);
      CHECK_THAT(ReadCpu().bytes == 0 && childs.header()->counters.foreign_frees == 1);
      return true;
    });
    CHECK_THAT(child_held);
    CHECK_THAT(ReadCpu().bytes == 1000);
    f.direct_free(parents);
    CHECK_THAT(ReadCpu().bytes == 0);
    return true;
  }));
}

TEST(Tracker, WithoutTheLibraryNothingIsHookedAndItSaysSo) {
  EXPECT_TRUE(InChild([] {
    static RingWriter ring;
    CHECK_THAT(ring.CreateAnonymous(RingSizes()) == 0);
    const TrackerReport report = StartTracker(&ring, "libnot_there.so");
    CHECK_THAT(report.capabilities == 0 && report.hooks[0] == 0);
    CHECK_THAT(ReadCpu().bytes == 0);
    return true;
  }));
}

TEST(Nvml, ReadsWhatTheDriverSays) {
  EXPECT_EQ(Nvml::Load("libnot_there.so.1"), nullptr);
  auto nvml = Nvml::Load(StandIn("libstandin_nvml.so").c_str());
  ASSERT_NE(nvml, nullptr);
  const auto gpus = nvml->Read();
  ASSERT_EQ(gpus.size(), 3u);
  EXPECT_EQ(gpus[0].used_bytes, 1ll << 30);
  EXPECT_EQ(gpus[1].used_bytes, 2ll << 30);
  EXPECT_EQ(gpus[1].total_bytes, 80ll << 30);
  EXPECT_EQ(gpus[2].used_bytes, kAbsent);
  EXPECT_EQ(gpus[0].name, "Test GPU");
  EXPECT_EQ(VisibleDevices(nullptr, gpus), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(VisibleDevices("1,0", gpus), (std::vector<size_t>{1, 0}));
  EXPECT_EQ(VisibleDevices("GPU-2", gpus), (std::vector<size_t>{1}));
  EXPECT_EQ(VisibleDevices("0,9,1", gpus), (std::vector<size_t>{0}));
  EXPECT_TRUE(VisibleDevices("", gpus).empty());
}

}  // namespace
}  // namespace lowtide::record
