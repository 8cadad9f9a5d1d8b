#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "lowtide/record/place.h"
#include "record/ring_reader.h"
#include "lowtide/record/ring_writer.h"
#include "record/run_folder.h"
#include "lowtide/record/slot.h"

namespace lowtide::record {
namespace {

namespace fs = std::filesystem;

class RingTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lowtide-ring-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Path(const char* name = "rank0.ring") const { return folder_ + "/" + name; }

  std::string folder_;
};

RingSizes Small() {
  RingSizes sizes;
  sizes.steps = 64, sizes.devices = 16, sizes.workers = 8, sizes.marks = 16, sizes.events = 8;
  sizes.series = 32, sizes.device_series = 8, sizes.worker_table = 4;
  return sizes;
}

// Every figure follows from the step, so that a mixture of two records shows.
StepRecord Made(uint64_t step) {
  StepRecord record{};
  record.step = step;
  record.mono_ns = static_cast<int64_t>(step * 1000);
  record.cpu_bytes = static_cast<int64_t>(step * 3);
  record.cpu_peak_bytes = static_cast<int64_t>(step * 5);
  record.heap_bytes = step % 4 ? kAbsent : static_cast<int64_t>(step * 7);
  record.python_blocks = record.rss_bytes = record.shared_bytes = record.shm_used_bytes = kAbsent;
  record.cpu_blocks = static_cast<int64_t>(~step);
  record.fds = static_cast<int32_t>(step % 1000);
  return record;
}

bool Fits(const StepRecord& record) {
  const StepRecord made = Made(record.step);
  return std::memcmp(&made, &record, sizeof(record)) == 0;
}

TEST_F(RingTest, WhatIsWrittenIsRead) {
  RingWriter writer;
  ASSERT_EQ(writer.Create(Path().c_str(), RingSizes()), 0);
  writer.header()->pid = ::getpid();
  writer.header()->rank = 3;
  writer.Publish();
  for (uint64_t step = 1; step <= 100; ++step) writer.Write(Made(step));
  MarkRecord mark{};
  mark.kind = MarkKind::kEpoch;
  std::snprintf(mark.text, sizeof(mark.text), "one");
  writer.Write(mark);
  Ring ring = Ring::Open(Path());
  ASSERT_EQ(ring.steps().size(), 100u);
  for (const StepRecord& step : ring.steps()) EXPECT_TRUE(Fits(step)) << step.step;
  EXPECT_EQ(ring.header().rank, 3);
  EXPECT_EQ(ring.header().last_step, 100u);
  ASSERT_EQ(ring.marks().size(), 1u);
  EXPECT_STREQ(ring.marks()[0].text, "one");
  EXPECT_EQ(ring.Refresh(), 0u);
  writer.Write(Made(101));
  EXPECT_EQ(ring.Refresh(), 1u);
  EXPECT_EQ(ring.steps().back().step, 101u);
  EXPECT_EQ(ring.loss().torn, 0u);
}

TEST_F(RingTest, ARingThatRanOverKeepsTheLastAndTheWholeRun) {
  RingWriter writer;
  ASSERT_EQ(writer.Create(Path().c_str(), Small()), 0);
  writer.Publish();
  for (uint64_t step = 1; step <= 100000; ++step) writer.Write(Made(step));
  Ring ring = Ring::Open(Path());
  ASSERT_EQ(ring.steps().size(), 64u);
  EXPECT_EQ(ring.steps().front().step, 100000u - 63);
  const auto series = ring.Series();
  ASSERT_GE(series.size(), 16u);
  ASSERT_LE(series.size(), 32u);
  uint64_t next = 1;
  for (const SeriesRecord& entry : series) {
    ASSERT_EQ(entry.first_step, next);
    EXPECT_EQ(entry.last_step, next + ring.header().series_stride - 1);
    EXPECT_EQ(entry.cpu.min, static_cast<int64_t>(entry.first_step * 3));
    EXPECT_EQ(entry.cpu.max, static_cast<int64_t>(entry.last_step * 3));
    EXPECT_EQ(entry.cpu_peak, static_cast<int64_t>(entry.last_step * 5));
    EXPECT_EQ(entry.heap.min, static_cast<int64_t>((entry.first_step + 3) / 4 * 4 * 7));
    EXPECT_EQ(entry.rss.min, kAbsent);
    EXPECT_EQ(entry.rss.max, kAbsent);
    next = entry.last_step + 1;
  }
  EXPECT_LE(next, 100001u);
  EXPECT_GT(next + ring.header().series_stride, 100000u);
}

TEST_F(RingTest, SlotsReadUnderAFullSpeedWriterAreNeverTorn) {
  alignas(64) static Slot<StepRecord> slots[8];
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t number = 0; !stop; ++number) WriteSlot(&slots[number % 8], number, kSteps, Made(number + 1));
  });
  uint64_t whole = 0, refused = 0;
  for (uint64_t i = 0; i < 10'000'000; ++i) {
    Slot<StepRecord> copy;
    if (!ReadSlot(&slots[i % 8], kSteps, &copy)) {
      ++refused;
      continue;
    }
    ++whole;
    ASSERT_TRUE(Fits(copy.record)) << "torn at step " << copy.record.step;
    ASSERT_EQ(copy.record.step, copy.header.sequence / 2);
  }
  stop = true;
  writer.join();
  EXPECT_GT(whole, 1000u);
  RecordProperty("refused", static_cast<int>(refused));
}

TEST_F(RingTest, AFileFollowedUnderAFullSpeedWriterIsNeverTorn) {
  RingWriter writer;
  RingSizes sizes = Small();
  sizes.steps = 4096;
  ASSERT_EQ(writer.Create(Path().c_str(), sizes), 0);
  writer.Publish();
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    for (uint64_t step = 1; !stop; ++step) writer.Write(Made(step));
  });
  Ring ring = Ring::Open(Path());
  uint64_t last = 0, seen = 0;
  for (int round = 0; round < 100'000 && (round < 300 || seen < 200'000); ++round) {
    const size_t added = ring.Refresh();
    const auto& steps = ring.steps();
    for (size_t i = steps.size() - std::min(added, steps.size()); i < steps.size(); ++i) {
      ASSERT_TRUE(Fits(steps[i])) << steps[i].step;
      ASSERT_GT(steps[i].step, last);
      last = steps[i].step;
      ++seen;
    }
    uint64_t next = 1;
    for (const SeriesRecord& entry : ring.Series()) {
      ASSERT_GE(entry.first_step, next);
      ASSERT_EQ(entry.cpu.min, static_cast<int64_t>(entry.first_step * 3));
      next = entry.last_step + 1;
    }
  }
  stop = true;
  thread.join();
  EXPECT_GT(seen, 1000u);
}

TEST_F(RingTest, CutAtAnyByteGivesAnErrorOrWhatIsWhole) {
  RingWriter writer;
  ASSERT_EQ(writer.Create(Path().c_str(), Small()), 0);
  writer.Publish();
  for (uint64_t step = 1; step <= 200; ++step) writer.Write(Made(step));
  const std::string whole = ReadFile(Path());
  const std::string cut = Path("cut.ring");
  size_t errors = 0, read = 0;
  for (size_t bytes = 0; bytes < whole.size(); bytes += bytes < 20000 ? 61 : 4099) {
    std::ofstream(cut, std::ios::binary | std::ios::trunc).write(whole.data(), static_cast<std::streamsize>(bytes));
    try {
      Ring ring = Ring::Open(cut);
      EXPECT_TRUE(ring.loss().cut);
      for (const StepRecord& step : ring.steps()) ASSERT_TRUE(Fits(step));
      for (const SeriesRecord& entry : ring.Series()) ASSERT_EQ(entry.cpu.min, static_cast<int64_t>(entry.first_step * 3));
      ring.Ledger();
      ring.WorkerTable();
      ++read;
    } catch (const Error& error) {
      EXPECT_FALSE(error.remedy().empty());
      EXPECT_EQ(error.file(), cut);
      ++errors;
    }
  }
  EXPECT_GT(errors, 50u);
  EXPECT_GT(read, 50u);
}

TEST_F(RingTest, DamagedBytesNeverCrashTheReader) {
  RingWriter writer;
  ASSERT_EQ(writer.Create(Path().c_str(), Small()), 0);
  writer.Publish();
  for (uint64_t step = 1; step <= 200; ++step) writer.Write(Made(step));
  const std::string whole = ReadFile(Path());
  std::mt19937_64 random(7);
  for (int round = 0; round < 600; ++round) {
    std::string damaged = whole;
    const size_t reach = round % 2 ? sizeof(FileHeader) : damaged.size();
    for (int i = 0; i < 8; ++i) damaged[8 + random() % (reach - 8)] = static_cast<char>(random());
    std::ofstream(Path("bad.ring"), std::ios::binary | std::ios::trunc).write(damaged.data(), static_cast<std::streamsize>(damaged.size()));
    try {
      Ring ring = Ring::Open(Path("bad.ring"));
      for (const StepRecord& step : ring.steps()) ASSERT_TRUE(Fits(step));
      ring.Series();
      ring.DeviceSeries();
      ring.Ledger();
      ring.Sizes();
      ring.WorkerTable();
      ring.WriterAlive();
    } catch (const Error&) {
    }
  }
}

TEST_F(RingTest, KilledAtAnyTimeNoCompletedRecordIsLost) {
  auto* completed = static_cast<std::atomic<uint64_t>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::mt19937 random(11);
  for (int round = 0; round < 150; ++round) {
    const std::string path = Path(("rank" + std::to_string(round) + ".ring").c_str());
    completed->store(0);
    const pid_t child = ::fork();
    if (child == 0) {
      RingWriter writer;
      if (writer.Create(path.c_str(), Small()) != 0) ::_exit(1);
      writer.Publish();
      for (uint64_t step = 1;; ++step) {
        writer.Write(Made(step));
        completed->store(step);
      }
    }
    while (completed->load() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    Ring ring = Ring::Open(path);
    const uint64_t last = completed->load();
    ASSERT_FALSE(ring.steps().empty());
    ASSERT_GE(ring.steps().back().step, last);
    ASSERT_LE(ring.steps().back().step, last + 1);
    // The slot under the pen is the oldest one of the ring.
    ASSERT_GE(ring.steps().size(), std::min<uint64_t>(last, 63));
    for (size_t i = 1; i < ring.steps().size(); ++i) {
      ASSERT_EQ(ring.steps()[i].step, ring.steps()[i - 1].step + 1);
      ASSERT_TRUE(Fits(ring.steps()[i]));
    }
    uint64_t next = 1;
    for (const SeriesRecord& entry : ring.Series()) {
      if (entry.first_step != next) {  // the entry being merged when the signal came
        ASSERT_EQ(next, 1u);
      }
      next = entry.last_step + 1;
    }
    fs::remove(path);
  }
  ::munmap(completed, 4096);
}

TEST_F(RingTest, ALimitOnFileSizesIsAnErrorNotASignal) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    RingWriter writer;
    if (writer.CreateAnonymous(RingSizes()) != 0) ::_exit(2);
    RingPlace place;
    const int failure = place.Open(&writer, folder_.c_str(), "/dev/shm", "lowtide-test-", ::getpid());
    writer.Publish();
    writer.Write(Made(1));  // goes on in private memory
    ::_exit(failure != 0 && !fs::exists(Path("proc1.ring")) ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(RingTest, WithoutSharedMemoryTheFileLiesInTheRunFolder) {
  RingWriter writer;
  ASSERT_EQ(writer.CreateAnonymous(Small()), 0);
  writer.Write(Made(1));
  RingPlace place;
  ASSERT_EQ(place.Open(&writer, folder_.c_str(), "/nowhere", "x-", 77), 0);
  EXPECT_FALSE(place.in_shm());
  writer.Publish();
  writer.Write(Made(2));
  ASSERT_EQ(place.NameByRank(4), 0);
  EXPECT_EQ(ListRings(folder_), std::vector<std::string>{Path("rank4.ring")});
  EXPECT_EQ(Ring::Open(Path("rank4.ring")).steps().size(), 2u);
}

TEST_F(RingTest, LinksBecomeFilesWhenCollected) {
  const std::string shm = folder_ + "/shm";
  fs::create_directory(shm);
  const std::string run = folder_ + "/run";
  fs::create_directory(run);
  const std::string prefix = ShmPrefix(run);
  RingWriter first, second, nameless;
  RingPlace first_place, second_place;
  for (RingWriter* ring : {&first, &second, &nameless}) ASSERT_EQ(ring->CreateAnonymous(Small()), 0);
  ASSERT_EQ(first_place.Open(&first, run.c_str(), shm.c_str(), prefix.c_str(), 10), 0);
  ASSERT_EQ(second_place.Open(&second, run.c_str(), shm.c_str(), prefix.c_str(), 11), 0);
  ASSERT_EQ(nameless.Materialise((shm + "/" + prefix + "12.ring").c_str()), 0);
  ASSERT_EQ(first_place.NameByRank(0), 0);
  ASSERT_EQ(second_place.NameByRank(0), 0);  // taken: the second one of that rank
  first.Publish();
  second.Publish();
  first.Write(Made(1));
  EXPECT_TRUE(fs::is_symlink(run + "/rank0.ring"));
  EXPECT_TRUE(CollectRings(run, shm).empty());
  EXPECT_EQ(ListRings(run), (std::vector<std::string>{run + "/rank0.ring", run + "/rank0.2.ring"}));
  EXPECT_FALSE(fs::is_symlink(run + "/rank0.ring"));
  EXPECT_EQ(Ring::Open(run + "/rank0.ring").steps().size(), 1u);
  EXPECT_TRUE(fs::is_empty(shm));
}

TEST_F(RingTest, OtherFilesAreRefusedWithARemedy) {
  std::ofstream(Path("text.ring")) << "step,allocated\n1,2\n";
  fs::create_symlink("/nowhere/at/all.ring", Path("rank9.ring"));
  for (const std::string& path : {Path("text.ring"), Path("rank9.ring"), Path("none.ring"), folder_}) {
    try {
      Ring::Open(path);
      FAIL() << path << " was opened";
    } catch (const Error& error) {
      EXPECT_FALSE(error.remedy().empty()) << path;
    }
  }
}

TEST_F(RingTest, ControlWordsReachTheWriter) {
  RingWriter writer;
  ASSERT_EQ(writer.Create(Path().c_str(), Small()), 0);
  writer.header()->pid = ::getpid();
  writer.header()->start_mono_ns = INT64_MAX / 2;
  writer.Publish();
  Ring ring = Ring::Open(Path());
  EXPECT_TRUE(ring.RequestCensus());
  EXPECT_TRUE(ring.RequestStopAt(12));
  EXPECT_EQ(writer.header()->control.census_request, 1u);
  EXPECT_EQ(writer.header()->control.stop_at_step, 12u);
  EXPECT_TRUE(ring.WriterAlive());
  writer.header()->start_mono_ns = 1;  // begun long before this process: another one has its number now
  ring.Refresh();
  EXPECT_FALSE(ring.WriterAlive());
}

}  // namespace
}  // namespace lowtide::record
