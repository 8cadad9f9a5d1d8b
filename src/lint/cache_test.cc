#include "lint/cache.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace lowtide::lint {
namespace {

class CacheTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Fill() {
    Cache cache(path_);
    cache.Put(7, kOld, 100, 3, "facts of seven");
    cache.Put(3, kOld, 101, 0, "");
    cache.Save();
  }

  const Stamp kOld{10, 1, 1000, 1000};
  const std::string folder_ = testing::TempDir() + "lowtide_cache_test";
  const std::string path_ = folder_ + "/sub/lint.cache";
};

TEST_F(CacheTest, FindsByStampAndByContent) {
  Fill();
  Cache cache(path_);
  auto hit = cache.FindByStamp(7, kOld);
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->facts, "facts of seven");
  EXPECT_EQ(hit->flags, 3u);
  EXPECT_TRUE(cache.FindByStamp(3, kOld));
  EXPECT_FALSE(cache.FindByStamp(4, kOld));
  EXPECT_FALSE(cache.FindByStamp(7, Stamp{10, 1, 1001, 1000}));
  EXPECT_FALSE(cache.FindByContent(7, Stamp{10, 2, 5, 5}, 999));
  EXPECT_TRUE(cache.FindByContent(7, Stamp{10, 2, 5, 5}, 100));
  cache.Save();
  EXPECT_TRUE(Cache(path_).FindByStamp(7, Stamp{10, 2, 5, 5})) << "the new stamp was not kept";
  EXPECT_TRUE(Cache(path_).FindByStamp(3, kOld)) << "an entry of an earlier run was lost";
}

TEST_F(CacheTest, AFileThatChangedJustNowIsNotTrustedByItsStamp) {
  const Stamp stamp{1, 1, INT64_MAX / 2, 1000};  // whatever the clock says, it changed after now
  {
    Cache cache(path_);
    cache.Put(1, stamp, 5, 0, "f");
    cache.Save();
  }
  Cache cache(path_);
  EXPECT_FALSE(cache.FindByStamp(1, stamp));
  EXPECT_TRUE(cache.FindByContent(1, stamp, 5));
}

TEST_F(CacheTest, DamageAnywhereIsAMissNeverAWrongAnswer) {
  Fill();
  const std::string good = ReadFile(path_);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x41);
    WriteFileAtomically(path_, bad);
    Cache cache(path_);
    auto hit = cache.FindByStamp(7, kOld);
    EXPECT_TRUE(!hit || hit->facts == "facts of seven") << at;
  }
  for (size_t size = 0; size < good.size(); size += 7) {
    WriteFileAtomically(path_, good.substr(0, size));
    EXPECT_FALSE(Cache(path_).FindByStamp(7, kOld)) << size;
  }
}

TEST_F(CacheTest, AnUnwritableFolderIsNoError) {
  Cache cache("/proc/nowhere/lint.cache");
  cache.Put(1, kOld, 1, 0, "f");
  cache.Save();
  EXPECT_FALSE(cache.FindByStamp(1, kOld));
}

}  // namespace
}  // namespace lowtide::lint
