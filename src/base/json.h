#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lowtide {

// A streaming JSON writer (RFC 8259): correct escapes, invalid UTF-8 replaced by U+FFFD, NaN and infinities as null.
//   JsonWriter json;  json.BeginObject().Key("a").Value(1).EndObject();  json.Take();
class JsonWriter {
 public:
  // `indent` 0 writes one line.
  explicit JsonWriter(int indent = 0) : indent_(indent) {}

  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(std::string_view key);

  JsonWriter& Value(std::string_view text);
  JsonWriter& Value(const char* text) { return Value(std::string_view(text)); }
  JsonWriter& Value(const std::string& text) { return Value(std::string_view(text)); }
  JsonWriter& Value(bool value) { return Raw(value ? "true" : "false"); }
  JsonWriter& Value(double value);
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  JsonWriter& Value(T value) {
    return Raw(std::to_string(value));
  }
  JsonWriter& Null() { return Raw("null"); }
  template <typename T>
  JsonWriter& Value(const std::optional<T>& value) {
    return value ? Value(*value) : Null();
  }
  template <typename T>
  JsonWriter& Field(std::string_view key, const T& value) {
    return Key(key).Value(value);
  }
  // `json` must be one complete JSON value.
  JsonWriter& Raw(std::string_view json);

  const std::string& text() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  void Separate();
  void NewLine();

  std::string out_;
  std::vector<bool> has_items_;
  int indent_;
  bool after_key_ = false;
};

// Bytes of the valid UTF-8 sequence at `at`, or 0 (Unicode 15, table 3-7).
size_t Utf8Length(std::string_view text, size_t at);

// `text` as a JSON string with its quotes.
std::string JsonQuote(std::string_view text);

}  // namespace lowtide
