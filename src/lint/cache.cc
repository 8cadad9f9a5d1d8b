#include "lint/cache.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "finding/version.h"

namespace lowtide::lint {
namespace {

constexpr char kMagic[8] = {'L', 'T', 'L', 'I', 'N', 'T', 'C', '1'};
constexpr int64_t kSettled =
    2'000'000'000;  // ns; file systems that count in seconds or two cannot tell changes nearer
constexpr uint32_t kKeepDays = 30;
constexpr uint64_t kMostBytes = 512u << 20;

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000LL + time.tv_nsec; }

int64_t Now() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return Nanoseconds(now);
}

// This version and this very binary: a new build never reads an old one's facts.
uint64_t BinaryKey() {
  static const uint64_t key = [] {
    struct stat info {};
    std::string text = kVersion;
    if (::stat("/proc/self/exe", &info) == 0) {
      text += fmt::format(" {} {}", info.st_size, Nanoseconds(info.st_mtim));
    }
    return ContentHash(text);
  }();
  return key;
}

}  // namespace

Stamp Stamp::From(const struct stat& info) {
  return {static_cast<uint64_t>(info.st_size), static_cast<uint64_t>(info.st_ino), Nanoseconds(info.st_mtim),
          Nanoseconds(info.st_ctim)};
}

std::optional<Stamp> Stamp::Of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return From(info);
}

uint64_t ContentHash(std::string_view content) { return std::hash<std::string_view>{}(content); }

Cache::Cache(std::string path)
    : path_(std::move(path)), today_(static_cast<uint32_t>(Now() / 86'400'000'000'000)) {
  if (!path_.empty()) Load();
}

void Cache::Load() {
  if (::access(path_.c_str(), R_OK) != 0) return;
  try {
    file_.emplace(path_);
  } catch (const Error&) {
    return;
  }
  std::string_view bytes = file_->text();
  Header header{};
  if (bytes.size() < sizeof header) return;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.key != BinaryKey()) return;
  if (header.entries > (bytes.size() - sizeof header) / sizeof(Entry)) return;
  std::string_view index = bytes.substr(sizeof header, header.entries * sizeof(Entry));
  if (ContentHash(index) != header.index_hash) return;
  entries_ =
      reinterpret_cast<const Entry*>(index.data());  // the map is page-aligned, the header a multiple of 8
  count_ = header.entries;
}

const Cache::Entry* Cache::Find(uint64_t name) const {
  const Entry* found =
      std::lower_bound(entries_, entries_ + count_, name,
                       [](const Entry& entry, uint64_t wanted) { return entry.name < wanted; });
  return found != entries_ + count_ && found->name == name ? found : nullptr;
}

std::string_view Cache::FactsOf(const Entry& entry) const {
  std::string_view bytes = file_->text();
  if (entry.offset > bytes.size() || entry.length > bytes.size() - entry.offset) return {};
  return bytes.substr(entry.offset, entry.length);
}

std::optional<Cache::Hit> Cache::Use(const Entry& entry) {
  std::string_view facts = FactsOf(entry);
  if (facts.size() != entry.length || ContentHash(facts) != entry.hash) return std::nullopt;
  return Hit{facts, entry.flags, entry.content};
}

std::optional<Cache::Hit> Cache::FindByStamp(uint64_t name, const Stamp& stamp) {
  const Entry* entry = Find(name);
  if (!entry || entry->stamp != stamp) return std::nullopt;
  if (entry->written - std::max(stamp.modified, stamp.changed) < kSettled) return std::nullopt;
  if (today_ > entry->day + kKeepDays / 2) {  // still in use: young again at the next write
    Entry used = *entry;
    used.day = today_;
    std::lock_guard lock(mutex_);
    fresh_.insert_or_assign(name, std::pair(used, std::string()));
  }
  return Use(*entry);
}

std::optional<Cache::Hit> Cache::FindByContent(uint64_t name, const Stamp& stamp, uint64_t content) {
  const Entry* entry = Find(name);
  if (!entry || entry->content != content || entry->stamp.size != stamp.size) return std::nullopt;
  auto hit = Use(*entry);
  if (!hit) return std::nullopt;
  Entry used = *entry;
  used.stamp = stamp;
  used.written = Now();
  used.day = today_;
  std::lock_guard lock(mutex_);
  fresh_.insert_or_assign(name, std::pair(used, std::string()));
  return hit;
}

void Cache::Put(uint64_t name, const Stamp& stamp, uint64_t content, uint32_t flags, std::string facts) {
  if (path_.empty()) return;
  Entry entry;
  entry.name = name;
  entry.content = content;
  entry.stamp = stamp;
  entry.written = Now();
  entry.length = facts.size();
  entry.hash = ContentHash(facts);
  entry.flags = flags;
  entry.day = today_;
  std::lock_guard lock(mutex_);
  fresh_.insert_or_assign(name, std::pair(entry, std::move(facts)));
}

void Cache::Save() {
  std::lock_guard lock(mutex_);
  if (path_.empty() || fresh_.empty()) return;
  std::vector<std::pair<Entry, std::string_view>> all;
  for (auto& [name, item] : fresh_) {
    bool is_old = item.second.empty() && item.first.length > 0;
    all.emplace_back(item.first, is_old ? FactsOf(item.first) : std::string_view(item.second));
  }
  uint64_t total = 0;
  for (const auto& item : all) total += item.second.size();
  for (size_t i = 0; i < count_; ++i) {
    const Entry& entry = entries_[i];
    if (fresh_.count(entry.name) || today_ > entry.day + kKeepDays || total + entry.length > kMostBytes)
      continue;
    total += entry.length;
    all.emplace_back(entry, FactsOf(entry));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
  std::string index, facts;
  uint64_t base = sizeof(Header) + all.size() * sizeof(Entry);
  for (auto& [entry, bytes] : all) {
    entry.offset = base + facts.size();
    facts += bytes;
    index.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  }
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key = BinaryKey();
  header.entries = all.size();
  header.index_hash = ContentHash(index);
  try {
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
    WriteFileAtomically(path_,
                        std::string(reinterpret_cast<const char*>(&header), sizeof header) + index + facts);
  } catch (const std::exception&) {
    // A cache that cannot be written costs time, nothing else.
  }
  fresh_.clear();
}

std::string CacheFolder(const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg == '/')
    return std::string(xdg) + "/lowtide";
  if (const char* home = std::getenv("HOME"); home && *home == '/')
    return std::string(home) + "/.cache/lowtide";
  return "";
}

}  // namespace lowtide::lint
