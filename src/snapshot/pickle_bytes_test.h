#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "snapshot/reader.h"

namespace lowtide::snapshot {

// Pickles written by hand, opcode by opcode.
class PickleBytes {
 public:
  explicit PickleBytes(int protocol = 4) { Op(0x80).Byte(protocol); }
  PickleBytes& Op(int opcode) { return Byte(opcode); }
  PickleBytes& Byte(int byte) {
    out_ += static_cast<char>(byte);
    return *this;
  }
  template <typename T>
  PickleBytes& Raw(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  PickleBytes& Str(std::string_view text) {
    Op(0x8c).Byte(static_cast<int>(text.size()));
    out_ += text;
    return *this;
  }
  PickleBytes& Text(std::string_view text) {
    out_ += text;
    return *this;
  }
  PickleBytes& Long(std::string_view little_endian) {
    Op(0x8a).Byte(static_cast<int>(little_endian.size()));
    out_ += little_endian;
    return *this;
  }
  const std::string& bytes() const { return out_; }

 private:
  std::string out_;
};

inline Snapshot ReadText(std::string_view text, unsigned threads = 1) {
  return ReadSnapshotBytes({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "test", {threads});
}

// One device from lists of "action address size" lines; a block is 512-rounded. For tests that need a trace
// and no file.
inline std::string JsonSnapshot(const std::string& events, const std::string& segments = "",
                                const std::string& settings = "") {
  return "{\"segments\": [" + segments + "], \"device_traces\": [[" + events + "]]" +
         (settings.empty() ? "" : ", \"allocator_settings\": {" + settings + "}") + "}";
}
inline std::string JsonEvent(const std::string& action, uint64_t address, uint64_t size, int line = 0,
                             int64_t time = 0) {
  std::string text = "{\"action\": \"" + action + "\", \"" + (action == "oom" ? "device_free" : "addr") +
                     "\": " + std::to_string(address) + ", \"size\": " + std::to_string(size) +
                     ", \"stream\": 0, \"time_us\": " + std::to_string(time);
  if (line)
    text += ", \"frames\": [{\"name\": \"f\", \"filename\": \"train.py\", \"line\": " + std::to_string(line) +
            "}]";
  return text + "}";
}

}  // namespace lowtide::snapshot
