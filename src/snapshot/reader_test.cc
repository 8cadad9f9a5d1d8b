#include "snapshot/reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "snapshot/explain.h"
#include "snapshot/opcodes.h"
#include "snapshot/pickle_bytes_test.h"

namespace lowtide::snapshot {
namespace {

namespace fs = std::filesystem;

std::string Slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

// An answer or an Error: anything else fails the test by itself.
bool Answers(std::string_view bytes) {
  try {
    Explain(ReadText(bytes), {});
    return true;
  } catch (const Error&) {
    return false;
  }
}

fs::path Corpus() { return fs::path(LOWTIDE_SOURCE_DIR) / "tests/corpus/pickle"; }

TEST(Reader, RefusesEveryOpcodeThatCouldRunCode) {
  for (const auto& refused : op::kRefused) {
    PickleBytes pickle;
    pickle.Op(']').Op(0x94).Op(refused.opcode).Text("os\nsystem\n").Op('.');
    try {
      ReadText(pickle.bytes());
      FAIL() << refused.name;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find(refused.name), std::string::npos) << error.message();
      EXPECT_EQ(error.offset(), 4u);
      EXPECT_FALSE(error.remedy().empty());
    }
  }
}

TEST(Reader, NamesWhatAGlobalWouldHaveImported) {
  PickleBytes pickle(2);
  pickle.Text("cos\nsystem\n").Op('.');
  try {
    ReadText(pickle.bytes());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("os.system"), std::string::npos) << error.message();
  }
}

TEST(Reader, EmptyListIsASnapshotWithoutSegments) {
  PickleBytes pickle;
  pickle.Op(']').Op(0x94).Op('.');
  EXPECT_TRUE(ReadText(pickle.bytes()).segments.empty());
}

TEST(Reader, ReadsIntegersOfNineBytesAndNegativeOnes) {
  PickleBytes pickle;
  pickle.Op('}').Op('(').Str("segments").Op(']').Str("device_traces").Op(']').Op(']');
  pickle.Op('}').Op('(').Str("action").Str("alloc").Str("addr").Long(
      std::string_view("\0\0\0\0\0\0\0\xff\0", 9));
  pickle.Str("size")
      .Long(std::string_view("\0\2", 2))
      .Str("stream")
      .Long("\xff")
      .Op('u')
      .Op('a')
      .Op('a')
      .Op('u')
      .Op('.');
  const Snapshot snapshot = ReadText(pickle.bytes());
  ASSERT_EQ(snapshot.events.size(), 1u);
  EXPECT_EQ(snapshot.events[0].address, 0xff00000000000000ull);
  EXPECT_EQ(snapshot.events[0].size, 512u);
  EXPECT_EQ(snapshot.ContextOf(snapshot.events[0]).stream, -1);
}

TEST(Reader, SaysWhereAFileEnds) {
  PickleBytes pickle;
  pickle.Op('}').Op('(').Op('X').Raw<uint32_t>(1000).Text("short");
  try {
    ReadText(pickle.bytes());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.offset(), 4u);
    EXPECT_NE(error.message().find("ends in the middle"), std::string::npos);
  }
}

TEST(Reader, StopsBombs) {
  std::string deep(100000, '(');
  EXPECT_FALSE(Answers(PickleBytes().Text(deep).bytes()));
  EXPECT_FALSE(Answers(PickleBytes().Op(']').Op('r').Raw<uint32_t>(0xfffffff0u).Op('.').bytes()));
  EXPECT_FALSE(Answers(PickleBytes().Op('X').Raw<uint32_t>(0xffffffffu).Op('.').bytes()));
  EXPECT_FALSE(Answers(PickleBytes().Op(0x8d).Raw<uint64_t>(~uint64_t{0}).Op('.').bytes()));
  EXPECT_FALSE(Answers(PickleBytes().Op(0x8b).Raw<uint32_t>(0x7fffffffu).Op('.').bytes()));
  std::string many(8 << 20, 'N');  // sixteen bytes on the stack for each
  EXPECT_FALSE(Answers(PickleBytes().Op('(').Text(many).bytes()));
}

// Lists of lists by reference: 2^n elements if anything were expanded.
TEST(Reader, DoesNotExpandReferences) {
  PickleBytes pickle;
  pickle.Op(']').Op(0x94);
  for (int i = 0; i < 60; ++i) pickle.Op(']').Op(0x94).Op('(').Op('h').Byte(i).Op('h').Byte(i).Op('e');
  pickle.Op('.');
  EXPECT_FALSE(Answers(pickle.bytes()));
}

// A stack that is opened again and again, each time by one frame, must not cost its square.
TEST(Reader, AppendsToAStackInLinearTime) {
  PickleBytes pickle;
  pickle.Op('}')
      .Op('(')
      .Str("name")
      .Str("f")
      .Str("filename")
      .Str("a.py")
      .Str("line")
      .Op('K')
      .Byte(1)
      .Op('u')
      .Op('q')
      .Byte(0)
      .Op('0');
  pickle.Op('}')
      .Op('(')
      .Str("segments")
      .Op(']')
      .Str("device_traces")
      .Op(']')
      .Op(']')
      .Op('}')
      .Op('(')
      .Str("action")
      .Str("alloc")
      .Str("frames")
      .Op(']');
  for (int i = 0; i < 200000; ++i) pickle.Op('(').Op('h').Byte(0).Op('e');
  pickle.Op('u').Op('a').Op('a').Op('u').Op('.');
  const Snapshot snapshot = ReadText(pickle.bytes());
  ASSERT_EQ(snapshot.events.size(), 1u);
  EXPECT_EQ(snapshot.names.stack(snapshot.events[0].stack).size(), 200000u);
}

TEST(Reader, TellsWhatAFileIsNot) {
  for (const char* text :
       {"", "hello", "<html>nothing</html>", "{\"a\": 1}", "PK\x03\x04garbage", "\x1f\x8bgarbage", "[1, 2"}) {
    try {
      ReadText(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.file(), "test") << text;
      EXPECT_FALSE(error.remedy().empty()) << text;
    }
  }
}

TEST(Reader, EveryPrefixOfAFileIsAnErrorOrAnAnswer) {
  const std::string whole = Slurp(Corpus() / "small.pickle");
  ASSERT_FALSE(whole.empty());
  ASSERT_TRUE(Answers(whole));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(Answers(std::string_view(whole).substr(0, size))) << size;
}

TEST(Reader, RandomByteChangesAreErrorsOrAnswers) {
  const std::string whole = Slurp(Corpus() / "small.pickle");
  ASSERT_FALSE(whole.empty());
  std::mt19937 random(20260101);
  size_t answers = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string changed = whole;
    for (unsigned n = 1 + random() % 3; n > 0; --n)
      changed[random() % changed.size()] = static_cast<char>(random());
    answers += Answers(changed);
  }
  EXPECT_GT(answers, 0u);
  EXPECT_LT(answers, 10000u);
}

TEST(Reader, TheCorpusIsErrorsOrAnswers) {
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(Corpus())) {
    if (!entry.is_regular_file()) continue;
    Answers(Slurp(entry.path()));
    ++files;
  }
  EXPECT_GT(files, 5u);
}

TEST(Reader, ReadsJsonLikeThePickle) {
  std::string events;
  for (int i = 0; i < 60000; ++i) {
    const bool free = i % 2;
    events += (i ? "," : "") + JsonEvent(free ? "free_completed" : "alloc",
                                         0x1000 + static_cast<uint64_t>(i / 2) * 512,
                                         100 + static_cast<uint64_t>(i / 2) % 1000, 1 + i / 2 % 50, i);
  }
  const Snapshot snapshot = ReadText(JsonSnapshot(events));
  EXPECT_EQ(snapshot.events.size(), 60000u);
  EXPECT_EQ(snapshot.StackCount(), 50u);
}

}  // namespace
}  // namespace lowtide::snapshot
