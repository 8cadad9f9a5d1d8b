#include "heap/beside.h"

#include <gtest/gtest.h>

#include <sys/wait.h>

#include <memory>
#include <stdexcept>

#include "heap/array.h"

namespace lowtide::heap {
namespace {

TEST(Beside, WhatItDidIsThereAfterTheWait) {
  int sum = 0;
  Beside work([&] {
    for (int i = 1; i <= 100; ++i) sum += i;
  });
  work.Wait();
  EXPECT_EQ(sum, 5050);
}

TEST(Beside, WaitThrowsWhatTheWorkThrew) {
  Beside work([] { throw std::runtime_error("out of luck"); });
  EXPECT_THROW(work.Wait(), std::runtime_error);
}

TEST(Beside, ItIsDoneBeforeItGoesOutOfScope) {
  int done = 0;
  try {
    Beside work([&] { ++done; });
    throw 1;
  } catch (int) {
  }
  const int then = done;
  EXPECT_LE(then, 1);
  EXPECT_EQ(done, then);
}

TEST(Beside, AnyProcessorWillDoWhenNobodyWaits) {
  std::atomic<bool> go{false};
  Beside work(
      [&] {
        while (!go) sched_yield();
      },
      Beside::kAnyProcessor);
  EXPECT_FALSE(work.Done());
  go = true;
  while (!work.Done()) sched_yield();
  work.Wait();
}

TEST(Beside, AForkedChildDoesNotWaitForWorkThatIsNotDoneThere) {
  std::atomic<bool> go{false};
  auto work = std::make_unique<Beside>(
      [&] {
        while (!go) sched_yield();
      },
      Beside::kAnyProcessor);
  const pid_t child = ::fork();
  if (child == 0) {
    alarm(10);
    const bool lost = work->Lost();
    work.reset();
    _exit(lost ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(work->Lost());
  go = true;
}

TEST(Array, KeepsItsContentsWhileItGrowsIntoMappingsOfItsOwn) {
  Array<uint64_t> numbers;
  const uint64_t count = 3 * kLargeArray / sizeof(uint64_t) + 7;
  for (uint64_t i = 0; i < count; ++i) numbers.push_back(i);
  for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(numbers[i], i);
  const Array<uint64_t> copy = numbers;
  numbers.clear();
  numbers.shrink_to_fit();
  EXPECT_EQ(copy.back(), count - 1);
}

TEST(Array, RoomThatIsNotUsedIsNotTaken) {
  Array<uint64_t> numbers;
  numbers.reserve(uint64_t{1} << 37);  // 1 TiB
  numbers.push_back(7);
  EXPECT_EQ(numbers[0], 7u);
}

}  // namespace
}  // namespace lowtide::heap
