#include "checkpoint/reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/testing_file_test.h"
#include "lowtide/checkpoint/image.h"

namespace lowtide::checkpoint {
namespace {

namespace fs = std::filesystem;

// ParseHeader over bytes in memory.
Header Parse(const std::string& bytes) {
  return ParseHeader(bytes.size(), [&](uint64_t offset, void* to, uint64_t count) {
    if (offset > bytes.size() || count > bytes.size() - offset) return false;
    std::memcpy(to, bytes.data() + offset, count);
    return true;
  });
}

std::string Refusal(const std::string& bytes) {
  try {
    Parse(bytes);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

class ReaderTest : public testing::Test {
 protected:
  ReaderTest() {
    std::string name = std::string(fs::exists("/dev/shm") ? "/dev/shm" : "/tmp") + "/lowtide-reader-XXXXXX";  // thousands of writes
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ + "/c.safetensors";
  }
  ~ReaderTest() override { fs::remove_all(folder_); }

  // What each of the two readers says of a file: this one and the header-only one for C++ programs.
  std::pair<bool, bool> Accepted(const std::string& bytes) const {
    Write(path_, bytes);
    std::pair<bool, bool> out{true, true};
    try {
      VerifyFile(path_);
    } catch (const Error&) {
      out.first = false;
    }
    try {
      FileReader(path_).Verify();
    } catch (const std::runtime_error&) {
      out.second = false;
    }
    return out;
  }
  void ExpectRefused(const std::string& bytes, const std::string& what) const {
    const auto [library, header_only] = Accepted(bytes);
    EXPECT_FALSE(library) << what;
    EXPECT_FALSE(header_only) << what << " (header-only reader)";
  }

  std::string folder_, path_;
};

TEST_F(ReaderTest, AGoodFile) {
  for (size_t alignment : {size_t{64}, size_t{kAlignment}}) {
    EXPECT_EQ(Accepted(Good(alignment)), (std::pair{true, true}));
    const Header header = Parse(Good(alignment));
    ASSERT_EQ(header.tensors.size(), 2u);
    EXPECT_EQ(header.tensors[0].name, "w");
    EXPECT_EQ(header.tensors[0].shape, (std::vector<uint64_t>{2, 3}));
    EXPECT_EQ(header.tensors[1].dtype, "I8");
    EXPECT_EQ(header.tensors[1].end, 29u);
    EXPECT_EQ(header.seal.step, 7u);
  }
}

TEST_F(ReaderTest, EveryTruncation) {
  const std::string good = Good();
  for (size_t length = 0; length < good.size(); ++length) ExpectRefused(good.substr(0, length), "cut at " + std::to_string(length));
}

TEST_F(ReaderTest, EveryBitOfTheFile) {
  const std::string good = Good();
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      ExpectRefused(bad, "bit " + std::to_string(bit) + " of byte " + std::to_string(at));
    }
  }
}

TEST_F(ReaderTest, AppendedAndRepeated) {
  ExpectRefused(Good() + std::string(64, '\0'), "64 bytes more");
  ExpectRefused(Good() + Good(), "twice");
  ExpectRefused(std::string(64, '\0') + Good(), "64 bytes before");
}

TEST_F(ReaderTest, OldAndNewMixed) {  // as a write that was torn at any byte would leave it
  const std::string one = Good(64, 7), two = Good(64, 8);
  ASSERT_EQ(one.size(), two.size());
  for (size_t at = 1; at < one.size(); ++at) {
    const std::string mixed = two.substr(0, at) + one.substr(at);
    if (mixed != one && mixed != two) ExpectRefused(mixed, "torn at " + std::to_string(at));
  }
}

constexpr char kSealEntry[] = R"("lowtide.seal":{"dtype":"U8","shape":[64],"data_offsets":[)";

// A header with these entries over `bytes` of data, everything else right.
std::string With(const std::string& entries, size_t bytes, const std::string& crcs) {
  return Sealed(R"({"__metadata__":{"lowtide.tree":"{}","lowtide.crc32c":")" + crcs + "\"}," + entries + (entries.empty() ? "" : ",") + kSealEntry +
                    std::to_string(bytes) + "," + std::to_string(bytes + 64) + "]}}",
                std::string(bytes, 'x'));
}

TEST_F(ReaderTest, HostileHeadersBehindAGoodSeal) {
  const std::string crc8 = Hex(Crc32c(0, "xxxxxxxx", 8)), crc4 = Hex(Crc32c(0, "xxxx", 4));
  const auto entry = [](const std::string& name, const std::string& rest) { return "\"" + name + "\":{" + rest + "}"; };
  EXPECT_EQ(Accepted(With(entry("a", R"("dtype":"I8","shape":[8],"data_offsets":[0,8])"), 8, crc8)), (std::pair{true, true}));
  const std::pair<const char*, std::string> cases[] = {
      {"overlap", With(entry("a", R"("dtype":"I8","shape":[8],"data_offsets":[0,8])") + "," +
                           entry("b", R"("dtype":"I8","shape":[4],"data_offsets":[4,8])"), 8, crc8 + crc4)},
      {"gap", With(entry("a", R"("dtype":"I8","shape":[4],"data_offsets":[4,8])"), 8, crc4)},
      {"backwards", With(entry("a", R"("dtype":"I8","shape":[8],"data_offsets":[8,0])"), 8, crc8)},
      {"negative offset", With(entry("a", R"("dtype":"I8","shape":[8],"data_offsets":[-8,0])"), 8, crc8)},
      {"beyond the end", With(entry("a", R"("dtype":"I8","shape":[9007199254740992],"data_offsets":[0,9007199254740992])"), 8, crc8)},
      {"offset beyond 64 bits", With(entry("a", R"("dtype":"I8","shape":[8],"data_offsets":[0,99999999999999999999999])"), 8, crc8)},
      {"no data of its own", With(entry("a", R"("dtype":"I8","shape":[8],"data_offsets":[0,8])"), 16, crc8)},
      {"twice the name", With(entry("a", R"("dtype":"I8","shape":[4],"data_offsets":[0,4])") + "," +
                                  entry("a", R"("dtype":"I8","shape":[4],"data_offsets":[4,8])"), 8, crc4 + crc4)},
      {"no checksums", With(entry("a", R"("dtype":"I8","shape":[8],"data_offsets":[0,8])"), 8, "")},
      {"no hexadecimal", With(entry("a", R"("dtype":"I8","shape":[8],"data_offsets":[0,8])"), 8, "zzzzzzzz")},
      {"wrong checksum", With(entry("a", R"("dtype":"I8","shape":[8],"data_offsets":[0,8])"), 8, "00000000")},
      {"three offsets", With(entry("a", R"("dtype":"I8","shape":[8],"data_offsets":[0,8,8])"), 8, crc8)},
      {"an entry that is a list", With(R"("a":[0,8])", 8, crc8)},
      {"deep lists", Sealed(std::string(100000, '['), "")},
      {"deep objects", [] {
         std::string deep;
         for (int i = 0; i < 5000; ++i) deep += "{\"a\":";
         return Sealed(deep, "");
       }()},
      {"deep in an entry", With(entry("a", R"("dtype":"I8","shape":)" + std::string(300, '[') + std::string(300, ']') +
                                               R"(,"data_offsets":[0,8])"), 8, crc8)},
      {"not JSON", Sealed("hello", "")},
      {"a list", Sealed("[]", "")},
      {"a cut string", Sealed("{\"a", "")},
      {"no entries", Sealed("{}", "")},
  };
  for (const auto& [what, bytes] : cases) ExpectRefused(bytes, what);
}

TEST_F(ReaderTest, WhatOnlyThisReaderChecks) {  // the header-only one checks type and shape when it makes the tensor
  const std::string crc8 = Hex(Crc32c(0, "xxxxxxxx", 8));
  for (const char* rest : {R"("dtype":"I8","shape":[7],"data_offsets":[0,8])", R"("dtype":"F32","shape":[8],"data_offsets":[0,8])",
                           R"("dtype":"X8","shape":[8],"data_offsets":[0,8])", R"("dtype":8,"shape":[8],"data_offsets":[0,8])",
                           R"("dtype":"I8","shape":[18446744073709551615,18446744073709551615,8],"data_offsets":[0,8])",
                           R"("dtype":"I8","shape":[4294967296,4294967296],"data_offsets":[0,8])",
                           R"("dtype":"I8","shape":[-8],"data_offsets":[0,8])", R"("dtype":"I8","shape":[8.0],"data_offsets":[0,8])",
                           R"("dtype":"I8","shape":[true],"data_offsets":[0,8])", R"("dtype":"I8","shape":{"0":8},"data_offsets":[0,8])"}) {
    EXPECT_NE(Refusal(With(std::string("\"a\":{") + rest + "}", 8, crc8)), "") << rest;
  }
}

TEST_F(ReaderTest, NamesThatAreNoText) {
  const std::string crc = Hex(Crc32c(0, "xxxxxxxx", 8));
  const std::string rest = R"(":{"dtype":"I8","shape":[8],"data_offsets":[0,8]})";
  for (const char* name : {"\xff\xfe", "\xc3", "\xed\xa0\x80", "\xf8\x88\x80\x80\x80"}) {
    EXPECT_NE(Refusal(With(std::string("\"") + name + rest, 8, crc)), "") << "not UTF-8";
  }
  EXPECT_NE(Refusal(With(std::string("\"a\nb") + rest, 8, crc)), "") << "a bare line break";
  EXPECT_EQ(Refusal(With(std::string("\"\xe5\xb1\x82.\xe6\x9d\x83\xe9\x87\x8d") + rest, 8, crc)), "") << "Chinese is fine";
}

TEST_F(ReaderTest, NoLengthIsAllocatedThatTheFileDoesNotHave) {
  for (uint64_t length : {uint64_t{1} << 29, uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 7}) {
    std::string bytes = Good();
    std::memcpy(bytes.data(), &length, 8);
    uint64_t asked = 0;
    EXPECT_THROW(ParseHeader(bytes.size(), [&](uint64_t offset, void* to, uint64_t count) {
      asked = std::max(asked, count);
      if (count > bytes.size()) return false;
      std::memcpy(to, bytes.data() + offset, count);
      return true;
    }), Error);
    EXPECT_LE(asked, 64u);
    ExpectRefused(bytes, std::to_string(length));
  }
}

TEST_F(ReaderTest, NoRegularFile) {
  EXPECT_THROW(VerifyFile(folder_), Error);
  EXPECT_THROW(VerifyFile(folder_ + "/none"), Error);
  EXPECT_THROW(VerifyFile("/dev/zero"), Error);
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  EXPECT_THROW(VerifyFile(folder_ + "/pipe"), Error);  // and does not wait for a writer
}

TEST_F(ReaderTest, ErrorsNameFileAndPlace) {
  std::string bad = Good();
  bad[bad.size() - 64 - 3] ^= 1;  // in "b"
  Write(path_, bad);
  try {
    VerifyFile(path_);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(path_), std::string::npos) << text;
    EXPECT_NE(text.find("tensor b"), std::string::npos) << text;
  }
}

TEST_F(ReaderTest, WhatTheHeaderOnlyWriterWrites) {
  const float weights[6] = {1, 2, 3, 4, 5, 6};
  const int64_t count = 42;
  const char empty = 0;
  Image image;
  image.Fill({{"b\"\\\n", "F32", {2, 3}, weights, 24, 4}, {"n", "I64", {}, &count, 8, 8}, {"none", "F32", {0, 4}, &empty, 0, 4}},
             R"({"n":{"$t":"n"}})", 12, "asked");
  const auto result = WriteFile(folder_, ".tmp-1", "c.safetensors", image.data(), image.bytes(), {});
  ASSERT_EQ(result.error, 0) << result.stage;
  const Header header = VerifyFile(path_);
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].name, "n");  // larger elements first
  EXPECT_EQ(header.data_start % kAlignment, 0u);
  EXPECT_EQ(header.seal.step, 12u);
  EXPECT_EQ(header.metadata.at("lowtide.tree"), R"({"n":{"$t":"n"}})");
  const FileReader reader(path_);
  float back[6] = {};
  reader.Read(*reader.Find("b\"\\\n"), back);
  EXPECT_EQ(std::memcmp(back, weights, sizeof back), 0);
}

}  // namespace
}  // namespace lowtide::checkpoint
