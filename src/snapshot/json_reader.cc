#include "snapshot/json_reader.h"

#include <fmt/core.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"

namespace lowtide::snapshot {
namespace {

constexpr size_t kFlushItems = 1024;  // a long list is handed over in batches, as the pickle has it
constexpr size_t kMostLevels = 1000;

// Walks bytes and leaves the position where messages find it.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  const char* begin;
  uint64_t* offset;
  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    ++at;
    *offset = static_cast<uint64_t>(at - begin);
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
  bool operator!=(const CountingIterator& other) const { return at != other.at; }
};

class Sax : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Sax(Builder& builder) : builder_(builder) {}
  Value top() const { return stack_.at(0); }

  bool null() override { return Push(Value::Of(Value::kNone)); }
  bool boolean(bool value) override {
    Value made = Value::Int(value);
    made.kind = Value::kBool;
    return Push(made);
  }
  bool number_integer(number_integer_t value) override { return Push(Value::Int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return Push(Value::Int(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override {
    Value made = Value::Of(Value::kFloat);
    made.real = value;
    return Push(made);
  }
  bool string(string_t& text) override { return Push(builder_.String(text)); }
  bool binary(binary_t&) override { return Push(Value::Of(Value::kOpaque)); }
  bool key(string_t& text) override {
    stack_.push_back(builder_.String(text));
    return true;
  }
  bool start_object(size_t) override { return Open(Value::kEmptyDict); }
  bool start_array(size_t) override { return Open(Value::kEmptyList); }
  bool end_object() override {
    const size_t from = Close();
    if (stack_.size() > from)
      builder_.SetItems(stack_[from - 1], {stack_.data() + from, stack_.size() - from});
    stack_.resize(from);
    return Flush();
  }
  bool end_array() override {
    const size_t from = Close();
    builder_.Append(stack_[from - 1], {stack_.data() + from, stack_.size() - from});
    stack_.resize(from);
    return Flush();
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string text = error.what();
    const size_t colon = text.rfind(": ");
    throw Error(
        fmt::format("the JSON is malformed: {}", colon == std::string::npos ? text : text.substr(colon + 2)),
        "the file is cut or damaged; write it again", builder_.snapshot_file(), position);
  }

 private:
  struct Level {
    size_t from;
    bool list;
  };
  bool Open(Value::Kind kind) {
    if (levels_.size() >= kMostLevels) {
      throw Error(fmt::format("objects are nested more than {} deep", kMostLevels), "no memory snapshot is",
                  builder_.snapshot_file(), builder_.offset);
    }
    stack_.push_back(Value::Of(kind));
    levels_.push_back({stack_.size(), kind == Value::kEmptyList});
    return true;
  }
  size_t Close() {
    const size_t from = levels_.back().from;
    levels_.pop_back();
    return from;
  }
  bool Push(const Value& value) {
    stack_.push_back(value);
    return Flush();
  }
  bool Flush() {
    if (levels_.empty() || !levels_.back().list) return true;
    const size_t from = levels_.back().from;
    if (stack_.size() - from < kFlushItems) return true;
    builder_.Append(stack_[from - 1], {stack_.data() + from, stack_.size() - from});
    stack_.resize(from);
    builder_.CheckBudget(stack_.capacity() * sizeof(Value));
    return true;
  }

  Builder& builder_;
  std::vector<Value> stack_;
  std::vector<Level> levels_;
};

}  // namespace

Value LoadJson(std::span<const uint8_t> bytes, Builder& builder) {
  const char* begin = reinterpret_cast<const char*>(bytes.data());
  const char* end = begin + bytes.size();
  Sax sax(builder);
  nlohmann::json::sax_parse(CountingIterator{begin, begin, &builder.offset},
                            CountingIterator{end, begin, &builder.offset}, &sax);
  return sax.top();
}

}  // namespace lowtide::snapshot
