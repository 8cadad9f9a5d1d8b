#include "lint/lsp_text.h"

#include <gtest/gtest.h>

namespace lowtide::lint {
namespace {

TEST(LspText, CountsUtf16Units) {
  LspText text("a\xC3\xA9\xE6\x90\x8D\xF0\x9F\x98\x80z\r\nsecond\rthird\n");
  EXPECT_EQ(text.At(0).character, 0u);
  EXPECT_EQ(text.At(1).character, 1u);
  EXPECT_EQ(text.At(3).character, 2u);
  EXPECT_EQ(text.At(6).character, 3u);
  EXPECT_EQ(text.At(10).character, 5u);  // the emoji is a surrogate pair
  EXPECT_EQ(text.ByteOf({0, 5}), 10u);
  EXPECT_EQ(text.ByteOf({0, 4}), 6u);  // inside the pair: before it
  EXPECT_EQ(text.ByteOf({0, 99}), 11u);
  EXPECT_EQ(text.At(text.ByteOf({2, 3})).line, 2u);
  EXPECT_EQ(text.ByteOf({9, 0}), text.text().size());
}

TEST(LspText, EveryByteOfBrokenUtf8HasAPlace) {
  LspText text("\xFF\xC3(\xE6\x90 \xF0\x9F\n\x80");
  for (uint32_t byte = 0; byte <= text.text().size(); ++byte) {
    LspPosition at = text.At(byte);
    EXPECT_LE(text.ByteOf(at), text.text().size());
  }
  EXPECT_EQ(text.At(2).character, 2u);
}

TEST(LspText, Replaces) {
  LspText text("one\ntwo\nthree");
  text.Replace({0, 3}, {1, 0}, " ");
  EXPECT_EQ(text.text(), "one two\nthree");
  text.Replace({1, 5}, {0, 0}, "!");  // the wrong way round: an insertion
  EXPECT_EQ(text.text(), "one two\nthree!");
  text.Replace({0, 0}, {UINT32_MAX, UINT32_MAX}, "");
  EXPECT_EQ(text.text(), "");
  text.Replace({3, 3}, {4, 4}, "x");
  EXPECT_EQ(text.text(), "x");
}

TEST(LspUri, BothWays) {
  EXPECT_EQ(PathOfUri("file:///a%20b/%E5%90%8D.py"), "/a b/\xE5\x90\x8D.py");
  EXPECT_EQ(UriOfPath("/a b/\xE5\x90\x8D.py"), "file:///a%20b/%E5%90%8D.py");
  EXPECT_EQ(PathOfUri("file://host/a.py"), "/a.py");
  EXPECT_EQ(PathOfUri("untitled:1"), "");
  EXPECT_EQ(PathOfUri("file://"), "");
  EXPECT_EQ(PathOfUri("file:///%zz%2"), "/%zz%2");
}

}  // namespace
}  // namespace lowtide::lint
