#include "record/run_folder.h"

#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "lowtide/record/place.h"
#include "record/ring_reader.h"
#include "lowtide/record/ring_writer.h"

namespace lowtide::record {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lowtide-folder-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    run_ = root_ + "/run", shm_ = root_ + "/shm";
    fs::create_directories(run_);
    fs::create_directories(shm_);
  }
  void TearDown() override { fs::remove_all(root_); }

  // A process of `host` that records in the folder; its ring lies in `shm`.
  void Begin(RingWriter& ring, RingPlace& place, const char* host, int pid, const std::string& shm,
             const std::string& prefix) {
    RingSizes small;
    small.steps = small.devices = small.workers = small.marks = small.events = small.series =
        small.device_series = 16;
    small.worker_table = small.looks = 16;
    ASSERT_EQ(ring.CreateAnonymous(small), 0);
    FileHeader* head = ring.header();
    head->pid = pid;
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    head->start_wall_ns = now.tv_sec * 1'000'000'000;
    std::snprintf(head->hostname, sizeof head->hostname, "%s", host);
    ASSERT_EQ(place.Open(&ring, run_.c_str(), shm.c_str(), prefix.c_str(), pid), 0);
    ring.Publish();
  }

  std::string Foreign() const { return "lowtide-0123456789abcdef-elsewhere-"; }

  std::string root_, run_, shm_;
};

TEST_F(RunFolderTest, NamesTheHostOfATarget) {
  EXPECT_EQ(OtherHostOf("/dev/shm/lowtide-0123456789abcdef-node-7.example-4711.ring"), "node-7.example");
  EXPECT_EQ(OtherHostOf(shm_ + "/" + ShmPrefix(run_) + "4711.ring"), "");
  EXPECT_EQ(OtherHostOf("/dev/shm/something-else-4711.ring"), "");
  EXPECT_EQ(OtherHostOf(""), "");
}

TEST_F(RunFolderTest, ProcessesOfTwoHostsWithOneNumberKeepTheirRings) {
  RingWriter ours, theirs;
  RingPlace our_place, their_place;
  Begin(theirs, their_place, "elsewhere", 100, shm_, Foreign());
  Begin(ours, our_place, "", 100, shm_, ShmPrefix(run_));
  EXPECT_EQ(ListRings(run_), (std::vector<std::string>{run_ + "/proc100.ring", run_ + "/proc100.2.ring"}));
  EXPECT_EQ(their_place.NameByRank(0), 0);
  EXPECT_EQ(our_place.NameByRank(1), 0);
  EXPECT_EQ(ListRings(run_), (std::vector<std::string>{run_ + "/rank0.ring", run_ + "/rank1.ring"}));
  EXPECT_STREQ(Ring::Open(run_ + "/rank0.ring").header().hostname, "elsewhere");
}

TEST_F(RunFolderTest, TheSameWithoutSharedMemory) {
  RingWriter ours, theirs;
  RingPlace our_place, their_place;
  Begin(theirs, their_place, "elsewhere", 100, "", "");
  Begin(ours, our_place, "ours", 100, "", "");
  EXPECT_EQ(their_place.NameByRank(0), 0);
  EXPECT_EQ(our_place.NameByRank(1), 0);
  EXPECT_STREQ(Ring::Open(run_ + "/rank0.ring").header().hostname, "elsewhere");
  EXPECT_STREQ(Ring::Open(run_ + "/rank1.ring").header().hostname, "ours");
}

TEST_F(RunFolderTest, EachHostCollectsItsOwn) {
  RingWriter ours, theirs;
  RingPlace our_place, their_place;
  Begin(theirs, their_place, "elsewhere", 100, shm_, Foreign());
  Begin(ours, our_place, "", 1 << 30, shm_, ShmPrefix(run_));  // no such process: it has ended
  EXPECT_EQ(their_place.NameByRank(0), 0);
  EXPECT_EQ(our_place.NameByRank(1), 0);
  EXPECT_TRUE(CollectRings(run_, shm_).empty());
  EXPECT_TRUE(fs::is_symlink(run_ + "/rank0.ring"));
  EXPECT_FALSE(fs::is_symlink(run_ + "/rank1.ring"));
  EXPECT_TRUE(fs::exists(shm_ + "/" + Foreign() + "100.ring"));
}

TEST_F(RunFolderTest, ARingThatIsStillWrittenIsLeftAlone) {
  RingWriter ring;
  RingPlace place;
  Begin(ring, place, "", ::getpid(), shm_, ShmPrefix(run_));
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  ring.header()->start_mono_ns = now.tv_sec * 1'000'000'000;
  EXPECT_TRUE(CollectRings(run_, shm_).empty());
  EXPECT_EQ(fs::exists(place.file()), true);
  EXPECT_TRUE(fs::is_symlink(place.name()));
}

TEST_F(RunFolderTest, AnotherHostsMemoryIsNamed) {
  fs::create_symlink("/nowhere/lowtide-0123456789abcdef-node7-5.ring", run_ + "/rank3.ring");
  try {
    Ring::Open(run_ + "/rank3.ring");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("node7"), std::string::npos) << error.message();
  }
}

TEST_F(RunFolderTest, AHostJoinsARunOfOthersOnly) {
  EXPECT_FALSE(BelongsToOtherHosts(run_));
  fs::create_symlink("/nowhere/lowtide-0123456789abcdef-node7-5.ring", run_ + "/rank3.ring");
  EXPECT_TRUE(BelongsToOtherHosts(run_));
  RingWriter theirs;
  RingPlace place;
  Begin(theirs, place, "elsewhere", 100, "", "");
  EXPECT_TRUE(BelongsToOtherHosts(run_));
  theirs.header()->exit_state = ExitState::kClean;
  EXPECT_FALSE(BelongsToOtherHosts(run_)) << "a run that is over is nobody's to join";
}

}  // namespace
}  // namespace lowtide::record
