#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lowtide {
namespace {

TEST(Json, NestsAndSeparates) {
  JsonWriter json;
  json.BeginObject().Field("a", 1).Key("b").BeginArray().Value(true).Null().Value("x").EndArray().EndObject();
  EXPECT_EQ(json.Take(), R"({"a":1,"b":[true,null,"x"]})");
}

TEST(Json, EscapesAndReplacesInvalidUtf8) {
  EXPECT_EQ(JsonQuote("a\"\\\n\x01"), "\"a\\\"\\\\\\n\\u0001\"");
  EXPECT_EQ(JsonQuote("\xff"), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(JsonQuote("\xE4\xBD\xA0"), "\"\xE4\xBD\xA0\"");
  EXPECT_EQ(JsonQuote("\xED\xA0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(Json, NumbersWithoutAValueAreNull) {
  JsonWriter json;
  json.BeginArray().Value(std::nan("")).Value(std::optional<int>()).Value(1e300 * 1e300).Value(2.5).EndArray();
  EXPECT_EQ(json.Take(), "[null,null,null,2.5]");
}

}  // namespace
}  // namespace lowtide
