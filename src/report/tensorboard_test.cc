#include "report/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "lowtide/crc32c.h"
#include "base/error.h"
#include "base/mapped_file.h"

namespace lowtide::report {
namespace {

std::string Hex(const std::string& bytes) {
  std::string out;
  for (unsigned char c : bytes) out += "0123456789abcdef"[c >> 4], out += "0123456789abcdef"[c & 15];
  return out;
}

uint32_t Word(const std::string& bytes, size_t at) {
  uint32_t word;
  std::memcpy(&word, bytes.data() + at, 4);
  return word;
}

// Turned right by 15 bits, plus a constant: what a reader undoes.
uint32_t Unmasked(uint32_t masked) {
  uint32_t turned = masked - 0xA282EAD8u;
  return turned >> 17 | turned << 15;
}

TEST(TensorBoard, ARecordHasItsLengthAndTwoChecksums) {
  std::string record = TfRecord("hello");
  ASSERT_EQ(record.size(), 8u + 4 + 5 + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\5\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(Unmasked(Word(record, 8)), Crc32c(0, record.data(), 8));
  EXPECT_EQ(record.substr(12, 5), "hello");
  EXPECT_EQ(Unmasked(Word(record, 17)), Crc32c(0, "hello", 5));
}

TEST(TensorBoard, AnEventIsAProtocolBuffer) {
  // wall_time 1.5, step 300, summary {value {tag "a", simple_value 0.5}}
  EXPECT_EQ(Hex(EventScalars(1.5, 300, {{"a", 0.5}})),
            "09000000000000f83f"
            "10ac02"
            "2a0a"
            "0a08"
            "0a0161"
            "150000003f");
  EXPECT_EQ(Hex(EventVersion(0)),
            "090000000000000000"
            "1a0d" +
                Hex("brain.Event:2"));
}

TEST(TensorBoard, AFileGrowsByWholeRecords) {
  std::string path = "/tmp/lowtide-events-" + std::to_string(::getpid());
  {
    EventFile file(path, 1);
    file.Flush();
    size_t first = ReadFile(path).size();
    EXPECT_EQ(first, TfRecord(EventVersion(1)).size());
    file.Add(2, 7, {{"memory/cpu", 3}});
    EXPECT_EQ(ReadFile(path).size(), first);
    file.Flush();
    EXPECT_EQ(ReadFile(path), TfRecord(EventVersion(1)) + TfRecord(EventScalars(2, 7, {{"memory/cpu", 3}})));
  }
  std::filesystem::remove(path);
  EXPECT_THROW(EventFile("/nowhere/events", 1), Error);
}

}  // namespace
}  // namespace lowtide::report
