#include "lowtide/record/host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lowtide/record/budget.h"

namespace lowtide::record {
namespace {

namespace fs = std::filesystem;

// A small tree that looks like / to the samplers.
class FakeRoot : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lowtide-root-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }
  void Put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  const char* root() const { return root_.c_str(); }

  std::string root_;
};

TEST_F(FakeRoot, ProcessFiguresAreRead) {
  Put("/proc/42/statm", "1000 300 120 1 0 200 0\n");
  Put("/proc/42/status", "Name:\tpt_data)\nState:\tS (sleeping)\nPPid:\t7\nVmHWM:\t  900 kB\nRssAnon:\t     500 kB\nRssFile:\t 80 kB\nRssShmem:\t 20 kB\n");
  Put("/proc/42/stat", "42 (a ) b) S 7 42 42 0 -1 4194304 12345 0 0 0 1 2 3\n");
  for (const char* fd : {"0", "1", "2", "17"}) Put(std::string("/proc/42/fd/") + fd, "");
  const auto page = static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(ReadStatm(root(), 42).rss_bytes, 300 * page);
  EXPECT_EQ(ReadStatm(root(), 42).shared_bytes, 120 * page);
  StatusFigures status;
  ASSERT_TRUE(ReadStatus(root(), 42, &status));
  EXPECT_EQ(status.rss_anon_bytes, 500 * 1024);
  EXPECT_EQ(status.rss_file_bytes, 80 * 1024);
  EXPECT_EQ(status.rss_shmem_bytes, 20 * 1024);
  EXPECT_EQ(status.parent_pid, 7);
  EXPECT_EQ(status.state, 'S');
  EXPECT_EQ(ReadMinorFaults(root(), 42), 12345);
  EXPECT_EQ(CountDescriptors(root(), 42), 4);
  EXPECT_FALSE(ReadStatus(root(), 43, &status));
  EXPECT_EQ(ReadMinorFaults(root(), 43), kAbsent);
  EXPECT_EQ(ReadStatm(root(), 43).rss_bytes, kAbsent);
  EXPECT_EQ(CountDescriptors(root(), 43), -1);
}

TEST_F(FakeRoot, TheTightestLimitOfAVersionTwoTreeCounts) {
  Put("/proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 5 kB\nMemAvailable:    8000000 kB\n");
  Put("/proc/9/cgroup", "0::/pod/box/run\n");
  Put("/sys/fs/cgroup/pod/box/run/memory.max", "max\n");
  Put("/sys/fs/cgroup/pod/box/memory.max", "4000000000\n");
  Put("/sys/fs/cgroup/pod/box/memory.current", "1000000000\n");
  Put("/sys/fs/cgroup/pod/memory.max", "9000000000\n");
  Put("/sys/fs/cgroup/pod/memory.current", "2\n");
  const MemoryLimits limits = ReadLimits(root(), 9);
  EXPECT_EQ(limits.host_total_bytes, 16000000ll * 1024);
  EXPECT_EQ(limits.host_available_bytes, 8000000ll * 1024);
  EXPECT_EQ(limits.cgroup_limit_bytes, 4000000000);
  EXPECT_EQ(limits.cgroup_used_bytes, 1000000000);
}

TEST_F(FakeRoot, VersionOneTreesAndNoLimitAtAll) {
  Put("/proc/9/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/x\n");
  Put("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "2147483648\n");
  Put("/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "77\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(ReadLimits(root(), 9).cgroup_limit_bytes, 2147483648);
  EXPECT_EQ(ReadLimits(root(), 9).cgroup_used_bytes, 77);
  Put("/proc/10/cgroup", "0::/\n");
  EXPECT_EQ(ReadLimits(root(), 10).cgroup_limit_bytes, kAbsent);
  EXPECT_EQ(ReadLimits(root(), 10).host_total_bytes, kAbsent);
}

TEST_F(FakeRoot, ChildrenAreFoundByTheirParent) {
  for (int pid : {20, 21, 22}) {
    Put("/proc/" + std::to_string(pid) + "/status", "Name:\tx\nPPid:\t" + std::to_string(pid == 22 ? 1 : 9) + "\n");
  }
  Put("/proc/version", "x");
  int pids[8];
  ASSERT_EQ(ListChildren(root(), 9, pids, 8), 2);
  EXPECT_EQ(pids[0] + pids[1], 41);
}

TEST(Host, ThisProcessIsSeen) {
  EXPECT_GT(ReadStatm("", 0).rss_bytes, 1 << 20);
  EXPECT_GE(CountDescriptors("", 0), 3);
  EXPECT_GT(ReadLimits("", 0).host_total_bytes, 0);
  if (!HeapKnown()) GTEST_SKIP() << "this C library has no mallinfo2";
  const int64_t before = ReadHeap();
  void* volatile small = std::malloc(5000);
  void* volatile large = std::malloc(64 << 20);
  EXPECT_GE(ReadHeap() - before, (64 << 20) + 5000);
  std::free(small);
  std::free(large);
  EXPECT_LT(ReadHeap() - before, 5000);
}

TEST(BudgetTest, CreditFirstThenAShareOfTheTime) {
  Budget budget(1000, 5000);  // a thousandth of the time
  int64_t now = 0;
  int samples = 0;
  for (; budget.Allows(now) && samples < 100; ++samples) budget.Spend(now, 1000);
  EXPECT_EQ(samples, 6);
  samples = 0;
  for (; now < 1'000'000'000; now += 1000) {
    if (budget.Allows(now)) budget.Spend(now, 1000), ++samples;
  }
  EXPECT_NEAR(samples, 1000, 10);
}

}  // namespace
}  // namespace lowtide::record
