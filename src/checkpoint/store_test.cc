#include "checkpoint/store.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/testing_file_test.h"

namespace lowtide::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    std::string name = std::string(fs::exists("/dev/shm") ? "/dev/shm" : "/tmp") + "/lowtide-store-XXXXXX";  // thousands of writes
    folder_ = ::mkdtemp(name.data());
  }
  ~StoreTest() override { fs::remove_all(folder_); }

  fs::path Folder(uint64_t step) const { return folder_ / fmt::format("step-{:012d}", step); }

  // A checkpoint of two ranks and a plain file; `change` may spoil the manifest before its checksum is made.
  template <typename Change>
  void Sharded(uint64_t step, Change change) const {
    fs::create_directories(Folder(step));
    Json files = Json::array();
    for (int rank : {0, 1}) {
      const std::string bytes = Good(64, step);
      Write(Folder(step) / fmt::format("rank-{:05d}.safetensors", rank), bytes);
      Seal seal{};
      std::memcpy(&seal, bytes.data() + bytes.size() - sizeof seal, sizeof seal);
      files.push_back({{"name", fmt::format("rank-{:05d}.safetensors", rank)}, {"bytes", bytes.size()}, {"header_crc", seal.header_crc},
                       {"nonce", std::string(32, '0')}});
    }
    Write(Folder(step) / "extra.bin", "extra");
    files.push_back({{"name", "extra.bin"}, {"bytes", 5}, {"crc32c", Crc32c(0, "extra", 5)}, {"plain", true}});
    Json manifest{{"lowtide", 1}, {"step", step}, {"world", 2}, {"files", files}};
    change(manifest);
    const std::string body = manifest.dump(-1, ' ', true);
    manifest["crc32c"] = Crc32c(0, body.data(), body.size());
    Write(Folder(step) / "manifest.json", manifest.dump());
  }
  void Sharded(uint64_t step) const {
    Sharded(step, [](Json&) {});
  }
  std::string Problem(const fs::path& path) const {
    const auto stored = List(path.string());
    return stored.size() == 1 ? Verify(stored[0]).problem : "there are " + std::to_string(stored.size());
  }

  fs::path folder_;
};

TEST_F(StoreTest, ListsCommittedFirstAndWhatIsLeftOverLast) {
  Write(folder_ / "step-000000000020.safetensors", Good(64, 20));
  Write(folder_ / "step-000000000003.safetensors", Good(64, 3));
  Sharded(11);
  Write(folder_ / ".tmp-77-step-000000000030.safetensors", "half");
  for (const char* other : {"step-3.safetensors", "step-000000000004.safetensors.bak", "notes.txt", ".lock", "xstep-000000000005.safetensors"}) {
    Write(folder_ / other, "");
  }
  const auto stored = List(folder_.string());
  ASSERT_EQ(stored.size(), 4u);
  EXPECT_EQ(stored[0].step, 3u);
  EXPECT_EQ(stored[1].step, 11u);
  EXPECT_EQ(stored[1].ranks, 2);
  EXPECT_EQ(stored[2].step, 20u);
  EXPECT_FALSE(stored[3].committed);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(Verify(stored[i]).problem, "") << stored[i].path;
  EXPECT_NE(Verify(stored[3]).problem, "");
}

TEST_F(StoreTest, NothingThere) {
  EXPECT_THROW(List((folder_ / "none").string()), Error);
  EXPECT_TRUE(List(folder_.string()).empty());
}

TEST_F(StoreTest, EveryTruncationAndBitOfAManifest) {
  Sharded(1);
  const fs::path path = Folder(1) / "manifest.json";
  std::ifstream file(path);
  const std::string good{std::istreambuf_iterator<char>(file), {}};
  ASSERT_EQ(Problem(Folder(1)), "");
  for (size_t length = 0; length < good.size(); ++length) {
    Write(path, good.substr(0, length));
    ASSERT_NE(Problem(Folder(1)), "") << "cut at " << length;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    Write(path, bad);
    ASSERT_NE(Problem(Folder(1)), "") << "byte " << at;
  }
}

TEST_F(StoreTest, HostileManifests) {
  const auto spoil = [](const char* what, auto change) { return std::pair<const char*, std::function<void(Json&)>>{what, change}; };
  for (const auto& [what, change] : {
           spoil("outside the folder", [](Json& m) { m["files"][0]["name"] = "../rank-00000.safetensors"; }),
           spoil("an absolute path", [](Json& m) { m["files"][2]["name"] = "/etc/passwd"; }),
           spoil("no name", [](Json& m) { m["files"][0]["name"] = ""; }),
           spoil("a name that is a number", [](Json& m) { m["files"][0]["name"] = 7; }),
           spoil("a file that is not there", [](Json& m) { m["files"][0]["name"] = "rank-00009.safetensors"; }),
           spoil("another size", [](Json& m) { m["files"][0]["bytes"] = 1; }),
           spoil("a negative size", [](Json& m) { m["files"][2]["bytes"] = -5; }),
           spoil("another header", [](Json& m) { m["files"][1]["header_crc"] = 1; }),
           spoil("another nonce", [](Json& m) { m["files"][1]["nonce"] = std::string(32, '1'); }),
           spoil("another checksum", [](Json& m) { m["files"][2]["crc32c"] = 1; }),
           spoil("files that are no list", [](Json& m) { m["files"] = "all"; }),
           spoil("no files", [](Json& m) { m.erase("files"); }),
           spoil("a step that is text", [](Json& m) { m["step"] = "one"; }),
           spoil("no world", [](Json& m) { m.erase("world"); }),
       }) {
    Sharded(1, change);
    EXPECT_NE(Problem(Folder(1)), "") << what;
  }
  Sharded(1);
  EXPECT_EQ(Problem(Folder(1)), "");
}

TEST_F(StoreTest, DamagedMembers) {
  for (const char* name : {"rank-00000.safetensors", "rank-00001.safetensors", "extra.bin"}) {
    Sharded(1);
    std::fstream file(Folder(1) / name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(3);
    file.put('~');
    file.close();
    EXPECT_NE(Problem(Folder(1)).find(name), std::string::npos) << name;
  }
  Sharded(1);
  fs::remove(Folder(1) / "manifest.json");
  EXPECT_NE(Verify({Folder(1).string(), 1, 0, 0, 2, true}).problem, "");
}

TEST_F(StoreTest, HeadersOfAll) {
  Sharded(5);
  EXPECT_EQ(Headers(List(Folder(5).string())[0]).size(), 2u);
}

}  // namespace
}  // namespace lowtide::checkpoint
