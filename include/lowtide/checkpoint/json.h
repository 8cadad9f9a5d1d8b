// The JSON of a checkpoint's header, for programs that have no JSON library: strings, whole numbers, lists and objects
// (true, false, null and fractions are passed over). Depth is bounded, a name that stands twice is refused.
#pragma once

#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lowtide::checkpoint {

struct Json {
  enum class Kind { kOther, kNumber, kString, kList, kObject } kind = Kind::kOther;
  uint64_t number = 0;
  std::string text;
  std::vector<std::string> names;  // an object's, in the order of `items`
  std::vector<Json> items;         // a list's, or an object's

  const Json* Find(const std::string& name) const;
};

inline const Json* Json::Find(const std::string& name) const {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return &items[i];
  }
  return nullptr;
}

class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : text_(text) {}
  // Throws std::runtime_error.
  Json Read() {
    Json value = Value(0);
    Blank();
    if (at_ != text_.size()) Fail();
    return value;
  }

 private:
  static constexpr int kDepth = 64;

  [[noreturn]] void Fail() const { throw std::runtime_error("is not the JSON of a checkpoint (at byte " + std::to_string(at_) + ")"); }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void Blank() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }
  void Take(char c) {
    Blank();
    if (Peek() != c) Fail();
    ++at_;
  }
  bool Maybe(char c) {
    Blank();
    if (Peek() != c) return false;
    ++at_;
    return true;
  }

  Json Value(int depth) {
    if (depth > kDepth) Fail();
    Blank();
    Json value;
    const char c = Peek();
    if (c == '{') {
      Object(value, depth);
    } else if (c == '[') {
      List(value, depth);
    } else if (c == '"') {
      value.kind = Json::Kind::kString;
      value.text = String();
    } else if (c >= '0' && c <= '9') {
      Number(value);
    } else {
      Word();
    }
    return value;
  }

  void Object(Json& value, int depth) {
    value.kind = Json::Kind::kObject;
    Take('{');
    if (Maybe('}')) return;
    std::set<std::string> seen;
    do {
      Blank();
      std::string name = String();
      if (!seen.insert(name).second) Fail();
      Take(':');
      value.names.push_back(std::move(name));
      value.items.push_back(Value(depth + 1));
    } while (Maybe(','));
    Take('}');
  }

  void List(Json& value, int depth) {
    value.kind = Json::Kind::kList;
    Take('[');
    if (Maybe(']')) return;
    do value.items.push_back(Value(depth + 1));
    while (Maybe(','));
    Take(']');
  }

  void Number(Json& value) {
    value.kind = Json::Kind::kNumber;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      if (__builtin_mul_overflow(value.number, uint64_t{10}, &value.number) ||
          __builtin_add_overflow(value.number, static_cast<uint64_t>(Peek() - '0'), &value.number)) {
        Fail();
      }
    }
    if (Peek() != '.' && Peek() != 'e' && Peek() != 'E') return;
    value.kind = Json::Kind::kOther;
    Word();
  }

  // A fraction, a negative number, true, false, null: nothing that a header's places or sizes may be.
  void Word() {
    const size_t begin = at_;
    for (char c = Peek(); (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' || c == 'E'; c = Peek()) ++at_;
    if (at_ == begin) Fail();
  }

  std::string String() {
    if (Peek() != '"') Fail();
    ++at_;
    std::string out;
    for (;;) {
      if (at_ >= text_.size()) Fail();
      const char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) Fail();
      if (c != '\\') {
        out += c;
        continue;
      }
      Escape(out);
    }
  }

  void Escape(std::string& out) {
    const char c = Peek();
    ++at_;
    switch (c) {
      case '"': case '\\': case '/': out += c; return;
      case 'b': out += '\b'; return;
      case 'f': out += '\f'; return;
      case 'n': out += '\n'; return;
      case 'r': out += '\r'; return;
      case 't': out += '\t'; return;
      case 'u': break;
      default: Fail();
    }
    uint32_t code = Hex();
    if (code >= 0xd800 && code < 0xdc00 && at_ + 1 < text_.size() && text_[at_] == '\\' && text_[at_ + 1] == 'u') {
      at_ += 2;
      code = 0x10000 + ((code - 0xd800) << 10) + ((Hex() - 0xdc00) & 0x3ff);
    }
    Utf8(code, out);
  }

  uint32_t Hex() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = Peek();
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      if (digit < 0) Fail();
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    return code;
  }

  static void Utf8(uint32_t code, std::string& out) {
    if (code < 0x80) {
      out += static_cast<char>(code);
      return;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    out += static_cast<char>((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | (code >> (6 * more)));
    for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3f));
  }

  const std::string& text_;
  size_t at_ = 0;
};

// Between quotation marks, with what JSON wants escaped.
inline std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      const char* digits = "0123456789abcdef";
      out += std::string("\\u00") + digits[(c >> 4) & 15] + digits[c & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace lowtide::checkpoint
