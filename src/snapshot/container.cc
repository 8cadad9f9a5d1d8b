#include "snapshot/container.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/units.h"
#include "snapshot/opcodes.h"

namespace lowtide::snapshot {
namespace {

// Real snapshots shrink by 10 to 60. What expands more than this, beyond a size that does not matter, is a
// bomb.
constexpr uint64_t kMostRatio = 200;
constexpr uint64_t kFreeBytes = 64 << 20;

std::string_view Text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t MostBytes(uint64_t packed) { return std::max(kFreeBytes, packed * kMostRatio); }

// Inflates one stream (zlib window bits: 31 gzip, -15 raw) to the end of `packed`; gzip members follow one
// another.
std::vector<uint8_t> Inflate(std::span<const uint8_t> packed, int window_bits, const std::string& file,
                             uint64_t at) {
  std::vector<uint8_t> out;
  z_stream stream{};
  if (inflateInit2(&stream, window_bits) != Z_OK) throw std::bad_alloc();
  struct End {
    z_stream* stream;
    ~End() { inflateEnd(stream); }
  } end{&stream};
  const uint64_t most = MostBytes(packed.size());
  size_t fed = 0;
  for (;;) {
    if (stream.avail_in == 0 && fed < packed.size()) {
      const size_t piece = std::min<size_t>(packed.size() - fed, 1 << 30);
      stream.next_in = const_cast<Bytef*>(packed.data() + fed);
      stream.avail_in = static_cast<uInt>(piece);
      fed += piece;
    }
    const size_t old = out.size();
    const size_t room = std::clamp<size_t>(old / 2, 1 << 20, 64 << 20);
    out.resize(old + room);
    stream.next_out = out.data() + old;
    stream.avail_out = static_cast<uInt>(room);
    const int state = inflate(&stream, Z_NO_FLUSH);
    out.resize(old + room - stream.avail_out);
    if (out.size() > most) {
      throw Error(fmt::format("it unpacks to more than {}, {} times its size",
                              FormatBytes(static_cast<double>(most)), kMostRatio),
                  "no real snapshot does; the file was made to exhaust memory, do not trust it", file, at);
    }
    if (state == Z_STREAM_END) {
      if (window_bits < 0 || (stream.avail_in == 0 && fed == packed.size())) return out;
      if (stream.avail_in < 2 || stream.next_in[0] != 0x1f) return out;  // padding after the last member
      inflateReset(&stream);
      continue;
    }
    if (state != Z_OK && state != Z_BUF_ERROR) {
      throw Error("the compressed data is damaged", "copy or write the file again", file,
                  at + fed - stream.avail_in);
    }
    if (stream.avail_in == 0 && fed == packed.size() && stream.avail_out != 0) {
      throw Error("the compressed data is cut", "copy or write the file again", file, at + fed);
    }
  }
}

uint32_t Read32(std::span<const uint8_t> bytes, size_t at) {
  uint32_t value = 0;
  if (at + 4 <= bytes.size()) std::memcpy(&value, bytes.data() + at, 4);
  return value;
}
uint16_t Read16(std::span<const uint8_t> bytes, size_t at) {
  return static_cast<uint16_t>(Read32(bytes, at) & 0xffff);
}

struct ZipEntry {
  uint16_t method = 0;
  uint64_t packed = 0, unpacked = 0, header = 0;
  std::string name;
};

std::vector<ZipEntry> ZipEntries(std::span<const uint8_t> bytes) {
  std::vector<ZipEntry> entries;
  const size_t end = Text(bytes).rfind("PK\x05\x06");
  if (end == std::string_view::npos || end + 22 > bytes.size()) return entries;
  size_t at = Read32(bytes, end + 16);
  for (unsigned i = 0, count = Read16(bytes, end + 10); i < count && at + 46 <= bytes.size(); ++i) {
    if (Read32(bytes, at) != 0x02014b50) break;
    ZipEntry entry;
    entry.method = Read16(bytes, at + 10);
    entry.packed = Read32(bytes, at + 20);
    entry.unpacked = Read32(bytes, at + 24);
    entry.header = Read32(bytes, at + 42);
    const size_t name = Read16(bytes, at + 28);
    if (at + 46 + name > bytes.size()) break;
    entry.name = Text(bytes).substr(at + 46, name);
    entries.push_back(entry);
    at += 46 + name + Read16(bytes, at + 30) + Read16(bytes, at + 32);
  }
  return entries;
}

// The largest member, preferring those named like a pickle.
std::vector<uint8_t> Unzip(std::span<const uint8_t> bytes, const std::string& file) {
  const ZipEntry* best = nullptr;
  auto named = [](const ZipEntry& e) {
    return e.name.ends_with(".pickle") || e.name.ends_with(".pkl") || e.name.ends_with(".json");
  };
  const auto entries = ZipEntries(bytes);
  for (const auto& entry : entries) {
    if (!best || std::pair(named(entry), entry.unpacked) > std::pair(named(*best), best->unpacked))
      best = &entry;
  }
  const char* remedy = "pack the snapshot again (one pickle in a plain zip), or give the pickle itself";
  if (!best) throw Error("the zip archive has no readable directory: it is cut or damaged", remedy, file);
  const size_t data = best->header + 30 + Read16(bytes, best->header + 26) + Read16(bytes, best->header + 28);
  if (Read32(bytes, best->header) != 0x04034b50 || data + best->packed > bytes.size()) {
    throw Error(fmt::format("the zip member {} lies outside the file", best->name), remedy, file,
                best->header);
  }
  const auto packed = bytes.subspan(data, best->packed);
  if (best->method == 0) return {packed.begin(), packed.end()};
  if (best->method != 8)
    throw Error(fmt::format("the zip member {} uses compression method {}", best->name, best->method), remedy,
                file, best->header);
  return Inflate(packed, -15, file, data);
}

std::vector<uint8_t> DecodeBase64(std::string_view text, const std::string& file, uint64_t at) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int8_t, 256> value;
  value.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i)
    value[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
  std::vector<uint8_t> out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int have = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '=') break;
    const int8_t digit = value[static_cast<uint8_t>(text[i])];
    if (digit < 0)
      throw Error("the base64 text in the page is damaged", "write the page again", file, at + i);
    bits = bits << 6 | static_cast<uint32_t>(digit);
    have += 6;
    if (have >= 8) {
      have -= 8;
      out.push_back(static_cast<uint8_t>(bits >> have));
    }
  }
  return out;
}

// trace_plot and segment_plot of torch.cuda._memory_viz: [{"name": "snapshot.pickle", "base64": "..."}].
std::vector<uint8_t> FromHtml(std::span<const uint8_t> bytes, const std::string& file) {
  const std::string_view text = Text(bytes);
  size_t key = text.find("\"base64\"");
  if (key == std::string_view::npos) {
    throw Error(
        "the HTML page holds no snapshot (no \"base64\" entry)",
        "give a page written by torch.cuda._memory_viz trace_plot or segment_plot, or the pickle itself",
        file);
  }
  const size_t open = text.find('"', key + 8);
  const size_t close = open == std::string_view::npos ? open : text.find('"', open + 1);
  if (close == std::string_view::npos)
    throw Error("the page is cut inside the snapshot", "write the page again", file, key);
  auto out = DecodeBase64(text.substr(open + 1, close - open - 1), file, open + 1);
  while (!out.empty() && out.back() == 0) out.pop_back();  // the viewer pads with NUL
  return out;
}

}  // namespace

const char* ContainerName(Container container) {
  static constexpr const char* kNames[] = {"pickle", "gzip", "zip", "html", "json"};
  return kNames[static_cast<int>(container)];
}

Container DetectContainer(std::span<const uint8_t> bytes, const std::string& file) {
  const char* remedy =
      "give a file that torch.cuda.memory._dump_snapshot() wrote (a pickle), or the same as .gz, .zip, JSON "
      "or trace_plot HTML";
  if (bytes.empty())
    throw Error("the file is empty",
                "the process was probably killed while it wrote the snapshot; write it again", file, 0);
  const std::string_view text = Text(bytes);
  if (bytes[0] == op::kProto) return Container::kPickle;
  if (text.starts_with("\x1f\x8b")) return Container::kGzip;
  if (text.starts_with("PK\x03\x04") || text.starts_with("PK\x05\x06")) return Container::kZip;
  const size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first != std::string_view::npos) {
    if (text[first] == '<') return Container::kHtml;
    if (text[first] == '{' || text[first] == '[') return Container::kJson;
  }
  if (text[0] == '(' || text[0] == ']' || text[0] == '}' || text[0] == 'c') {
    if (text[0] == 'c') {
      throw Error("refused the pickle opcode GLOBAL, which could run code: a memory snapshot holds data only",
                  "do not load this file with pickle.load", file, 0);
    }
    throw Error("the file is a pickle of protocol 0 or 1, which no writer of memory snapshots uses", remedy,
                file, 0);
  }
  throw Error(fmt::format("the file starts with byte 0x{:02x}, which is no pickle, gzip, zip, HTML or JSON",
                          bytes[0]),
              remedy, file, 0);
}

std::vector<uint8_t> Unpack(Container container, std::span<const uint8_t> bytes, const std::string& file) {
  switch (container) {
    case Container::kGzip:
      return Inflate(bytes, 31, file, 0);
    case Container::kZip:
      return Unzip(bytes, file);
    case Container::kHtml:
      return FromHtml(bytes, file);
    default:
      return {bytes.begin(), bytes.end()};
  }
}

}  // namespace lowtide::snapshot
