#include "checkpoint/store.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "lowtide/crc32c.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/reader.h"

namespace lowtide::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Member {
  std::string name;
  uint64_t bytes = 0, header_crc = 0, crc = 0;
  std::string nonce;
  bool plain = false;  // any file: its checksum is in the manifest
};

struct Manifest {
  uint64_t step = 0, world = 0;
  std::vector<Member> files;
};

std::string Hex(const uint8_t* data, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < bytes; ++i) out += fmt::format("{:02x}", data[i]);
  return out;
}

// The manifest's checksum is over the document without it, keys sorted, without spaces.
Manifest ReadManifest(const std::string& folder) {
  const std::string path = folder + "/manifest.json";
  std::error_code ignored;
  if (fs::file_size(path, ignored) > (64u << 20)) throw Error("the manifest is too large", "use an older checkpoint", path);
  const Error damaged("the manifest is damaged", "use an older checkpoint", path);
  Json json = Json::parse(ReadFile(path), nullptr, false);
  if (!json.is_object() || !json.contains("crc32c")) throw damaged;
  try {
    const auto crc = json["crc32c"].get<uint32_t>();
    json.erase("crc32c");
    const std::string body = json.dump(-1, ' ', true);
    if (Crc32c(0, body.data(), body.size()) != crc) throw damaged;
    Manifest manifest{json.at("step").get<uint64_t>(), json.at("world").get<uint64_t>(), {}};
    for (const Json& item : json.at("files")) {
      Member member;
      member.name = item.at("name").get<std::string>();
      member.bytes = item.at("bytes").get<uint64_t>();
      member.plain = item.value("plain", false);
      if (member.name.empty() || member.name[0] == '/' || member.name.find("..") != std::string::npos) throw damaged;
      if (member.plain) {
        member.crc = item.at("crc32c").get<uint64_t>();
      } else {
        member.header_crc = item.at("header_crc").get<uint64_t>();
        member.nonce = item.at("nonce").get<std::string>();
      }
      manifest.files.push_back(std::move(member));
    }
    return manifest;
  } catch (const Json::exception&) {
    throw damaged;
  }
}

void VerifyMember(const std::string& folder, const Member& member) {
  const std::string path = folder + "/" + member.name;
  if (member.plain) {
    MappedFile file(path);
    if (file.bytes().size() != member.bytes || Crc32c(0, file.bytes().data(), member.bytes) != member.crc) {
      throw Error("differs from what was written", "use an older checkpoint", path);
    }
    return;
  }
  const Header header = VerifyFile(path);
  if (header.file_bytes != member.bytes || header.seal.header_crc != member.header_crc || Hex(header.seal.nonce, 16) != member.nonce) {
    throw Error("belongs to another save than its manifest", "use an older checkpoint", path);
  }
}

Stored Describe(const fs::path& path) {
  static const std::regex kName("step-(\\d{12})(\\.safetensors)?");
  Stored stored;
  stored.path = path.string();
  std::smatch match;
  const std::string name = path.filename().string();
  if (std::regex_match(name, match, kName)) stored.step = std::stoull(match[1]);
  struct stat info {};
  if (::stat(stored.path.c_str(), &info) == 0) stored.written = info.st_mtime;
  if (!S_ISDIR(info.st_mode)) {
    stored.bytes = static_cast<uint64_t>(info.st_size);
    return stored;
  }
  stored.ranks = 0;
  std::error_code error;
  for (auto item = fs::recursive_directory_iterator(path, error); !error && item != fs::recursive_directory_iterator(); item.increment(error)) {
    if (!item->is_regular_file(error)) continue;
    stored.bytes += item->file_size(error);
    stored.ranks += item->path().filename().string().starts_with("rank-");
  }
  return stored;
}

}  // namespace

std::vector<Stored> List(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw Error("there is no such file or folder", "check the path", path);
  if (!fs::is_directory(path, error) || fs::exists(path + "/manifest.json", error)) return {Describe(path)};
  static const std::regex kCommitted("step-\\d{12}(\\.safetensors)?");
  std::vector<Stored> out;
  for (const auto& item : fs::directory_iterator(path, error)) {
    const std::string name = item.path().filename().string();
    const bool committed = std::regex_match(name, kCommitted);
    if (!committed && !name.starts_with(".tmp-")) continue;
    out.push_back(Describe(item.path()));
    out.back().committed = committed;
  }
  if (error) throw Error(fmt::format("cannot be listed: {}", error.message()), "", path);
  std::sort(out.begin(), out.end(), [](const Stored& a, const Stored& b) {
    return std::tuple(!a.committed, a.step, a.path) < std::tuple(!b.committed, b.step, b.path);
  });
  return out;
}

Verdict Verify(const Stored& stored) {
  Verdict verdict{stored, {}};
  try {
    if (!fs::is_directory(stored.path)) {
      verdict.stored.step = VerifyFile(stored.path).seal.step;
      return verdict;
    }
    const Manifest manifest = ReadManifest(stored.path);
    verdict.stored.step = manifest.step;
    for (const Member& member : manifest.files) VerifyMember(stored.path, member);
  } catch (const std::exception& error) {
    verdict.problem = error.what();
  }
  return verdict;
}

std::vector<Header> Headers(const Stored& stored) {
  if (!fs::is_directory(stored.path)) return {ReadHeader(stored.path)};
  std::vector<Header> out;
  for (const Member& member : ReadManifest(stored.path).files) {
    if (!member.plain) out.push_back(ReadHeader(stored.path + "/" + member.name));
  }
  return out;
}

}  // namespace lowtide::checkpoint
