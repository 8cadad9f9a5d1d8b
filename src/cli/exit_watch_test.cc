#include "cli/exit_watch.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "lowtide/record/ring_writer.h"

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;

// One rank with ten steps of 10 ms, on a machine of our own making.
class ExitWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lowtide-exit-XXXXXX";
    folder_ = ::mkdtemp(name);
    const std::string path = (folder_ / "rank0.ring").string();
    ASSERT_EQ(writer_.Create(path.c_str(), record::RingSizes()), 0);
    writer_.header()->pid = 1;
    for (uint64_t step = 1; step <= 10; ++step) {
      record::StepRecord record{};
      record.step = step;
      record.mono_ns = static_cast<int64_t>(step) * 10'000'000;
      writer_.Write(record);
    }
    writer_.Publish();
    ring_ = std::make_unique<record::Ring>(record::Ring::Open(path));
    ring_->Refresh();
    Meminfo(1000, 600);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Meminfo(long total_kb, long available_kb) const {
    fs::create_directories(folder_ / "proc");
    std::ofstream(folder_ / "proc/meminfo") << "MemTotal: " << total_kb << " kB\nMemFree: 1 kB\nMemAvailable: " << available_kb
                                            << " kB\n";
  }
  void Device(int64_t allocated, int64_t capacity) {
    record::DeviceEntry& entry = writer_.header()->devices[0];
    entry.type = 1, entry.index = 3, entry.used = 1, entry.capacity_bytes = capacity;
    record::DeviceRecord record{};
    record.step = 10;
    record.type = 1, record.index = 3;
    record.allocated_bytes = allocated, record.reserved_bytes = capacity;
    writer_.Write(record);
    ring_->Refresh();
  }
  const record::Control& Control() const { return writer_.header()->control; }

  fs::path folder_;
  record::RingWriter writer_;
  std::unique_ptr<record::Ring> ring_;
};

TEST_F(ExitWatchTest, TheTightestLimitIsTheOneNearestToFull) {
  TightestLimit host = FindTightest({ring_.get()}, report::Words("en"), folder_.c_str());
  EXPECT_NEAR(host.share, 0.4, 1e-9);
  EXPECT_NE(host.name.find("host"), std::string::npos);
  Device(900, 1000);
  TightestLimit device = FindTightest({ring_.get()}, report::Words("en"), folder_.c_str());
  EXPECT_NEAR(device.share, 0.9, 1e-9);  // what the allocator holds free is not in use
  EXPECT_NE(device.name.find("device 3"), std::string::npos);
}

TEST_F(ExitWatchTest, ADeviceOfUnknownSizeIsNoLimit) {
  Device(900, record::kAbsent);
  EXPECT_NEAR(FindTightest({ring_.get()}, report::Words("en"), folder_.c_str()).share, 0.4, 1e-9);
}

TEST_F(ExitWatchTest, AsksOnceAndAheadOfTheSteps) {
  ExitWatch watch(1e-6, "en");  // of this machine
  EXPECT_NE(watch.Look({ring_.get()}), "");
  EXPECT_GE(Control().stop_at_step, 10u + 50u);  // half a second
  EXPECT_EQ(Control().stop_reason, static_cast<uint64_t>(record::StopReason::kMemory));
  writer_.header()->control.stop_at_step = 0;
  EXPECT_EQ(watch.Look({ring_.get()}), "");
  EXPECT_EQ(Control().stop_at_step, 0u);
}

TEST_F(ExitWatchTest, ALeakEndsTheRunOnlyNearTheEnd) {
  verdict::Judgement leak;
  ExitWatch watch(0.999999, "en");
  EXPECT_EQ(watch.Leak({ring_.get()}, leak), "");  // no limit known
  leak.steps_to_oom = 60'000;                      // ten minutes
  EXPECT_EQ(watch.Leak({ring_.get()}, leak), "");
  leak.steps_to_oom = 3000;                        // half a minute
  EXPECT_NE(watch.Leak({ring_.get()}, leak), "");
  EXPECT_EQ(Control().stop_reason, static_cast<uint64_t>(record::StopReason::kLeak));
}

TEST_F(ExitWatchTest, WithoutAShareNothingIsAsked) {
  ExitWatch watch(0, "en");
  verdict::Judgement leak;
  leak.steps_to_oom = 1;
  EXPECT_EQ(watch.Look({ring_.get()}) + watch.Leak({ring_.get()}, leak), "");
  EXPECT_EQ(Control().stop_at_step, 0u);
}

}  // namespace
}  // namespace lowtide::cli
