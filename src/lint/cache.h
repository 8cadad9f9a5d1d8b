#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"

struct stat;

namespace lowtide::lint {

// What the file system says about a file; the same stamp means the same content, unless `settled` is false.
struct Stamp {
  uint64_t size = 0, inode = 0;
  int64_t modified = 0, changed = 0;  // ns since the epoch

  static std::optional<Stamp> Of(const std::string& path);  // nullopt: cannot be asked
  static Stamp From(const struct stat& info);
  bool operator==(const Stamp&) const = default;
};

uint64_t ContentHash(std::string_view content);

// Facts of files already analysed, in one file per project:
//   header: magic, key of this binary, number of entries, hash of the index | index, sorted by name | facts
// An entry is found by the file's name and used when its stamp or its content's hash is the same. A damaged,
// cut or foreign cache file is an empty cache; one written by another build too. All methods are thread-safe.
class Cache {
 public:
  // `path` empty: nothing is kept.
  explicit Cache(std::string path);

  struct Hit {
    std::string_view facts;  // valid as long as the cache
    uint32_t flags = 0;
    uint64_t content = 0;  // hash of the file's bytes
  };
  // By stamp alone: only when the entry was written well after the file's last change.
  std::optional<Hit> FindByStamp(uint64_t name, const Stamp& stamp);
  // By content; the entry takes on the new stamp.
  std::optional<Hit> FindByContent(uint64_t name, const Stamp& stamp, uint64_t content);
  void Put(uint64_t name, const Stamp& stamp, uint64_t content, uint32_t flags, std::string facts);

  // Writes what changed, together with what other runs left in the last 30 days; failure to write is no
  // error.
  void Save();

 private:
  struct Entry {
    uint64_t name = 0, content = 0;
    Stamp stamp;
    int64_t written = 0;                        // ns: when the stamp was taken down
    uint64_t offset = 0, length = 0, hash = 0;  // facts
    uint32_t flags = 0;
    uint32_t day = 0;  // of the last use
  };
  struct Header {
    char magic[8];
    uint64_t key, entries, index_hash;
  };

  void Load();
  const Entry* Find(uint64_t name) const;
  std::optional<Hit> Use(const Entry& entry);
  std::string_view FactsOf(const Entry& entry) const;

  std::string path_;
  std::optional<MappedFile> file_;
  const Entry* entries_ = nullptr;
  size_t count_ = 0;
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::pair<Entry, std::string>>
      fresh_;  // by name; empty facts: those of the old entry
  uint32_t today_ = 0;
};

// The folder for caches: `wanted`, or $XDG_CACHE_HOME/lowtide, or ~/.cache/lowtide; empty when there is none.
std::string CacheFolder(const std::string& wanted);

}  // namespace lowtide::lint
