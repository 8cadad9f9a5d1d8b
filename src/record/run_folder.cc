#include "record/run_folder.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "record/ring_reader.h"

namespace lowtide::record {
namespace fs = std::filesystem;
namespace {

bool IsRingName(const std::string& name) {
  return name.ends_with(".ring") && (name.starts_with("rank") || name.starts_with("proc") ||
                                     name.starts_with("observer"));
}

// rank0, rank1, rank1.2, then processes without a rank, then the observer.
std::tuple<int, long, long, std::string> SortKey(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  const int kind = name.starts_with("rank") ? 0 : name.starts_with("proc") ? 1 : 2;
  const size_t digits = name.find_first_of("0123456789");
  long number = 0, repeat = 0;
  if (digits != std::string::npos) std::sscanf(name.c_str() + digits, "%ld.%ld", &number, &repeat);
  return {kind, number, repeat, name};
}

bool StillWritten(const std::string& path) {
  try {
    return Ring::Open(path).WriterAlive();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string OtherHostOf(const std::string& target) {
  const std::string name = fs::path(target).filename().string();
  if (!name.starts_with(kShmName)) return {};
  const size_t host = std::string_view(kShmName).size() + kShmHashDigits + 1, end = name.rfind('-');
  if (end == std::string::npos || end <= host) return {};
  const std::string tag = name.substr(host, end - host);
  return tag == HostTag() ? std::string() : tag;
}

bool BelongsToOtherHosts(const std::string& directory) {
  char own[256] = {};
  ::gethostname(own, sizeof own - 1);
  const auto rings = ListRings(directory);
  return !rings.empty() && std::all_of(rings.begin(), rings.end(), [&](const std::string& path) {
    std::error_code failure;
    if (fs::is_symlink(path, failure)) return !OtherHostOf(fs::read_symlink(path, failure)).empty();
    try {
      const Ring ring = Ring::Open(path);
      return std::string_view(own).substr(0, sizeof(FileHeader::hostname) - 1) != ring.header().hostname && ring.WriterAlive();
    } catch (const Error&) {
      return false;
    }
  });
}

std::vector<std::string> ListRings(const std::string& directory) {
  std::vector<std::string> out;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(directory, failure)) {
    if (IsRingName(entry.path().filename().string())) out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return SortKey(a) < SortKey(b); });
  return out;
}

std::vector<std::string> CollectRings(const std::string& directory, const std::string& shm_directory) {
  std::vector<std::string> trouble;
  std::set<std::string> kept;  // names of originals
  for (const std::string& path : ListRings(directory)) {
    std::error_code failure;
    if (!fs::is_symlink(path, failure)) continue;
    const fs::path target = fs::read_symlink(path, failure);
    if (!OtherHostOf(target).empty()) continue;
    if (StillWritten(path)) {
      kept.insert(target.filename().string());
      continue;
    }
    const std::string draft = path + ".part";
    fs::copy_file(target, draft, fs::copy_options::overwrite_existing, failure);
    if (!failure) fs::rename(draft, path, failure);
    if (failure) {
      trouble.push_back(fmt::format("{}: {}; the record stays in memory, in {}, until this machine restarts: `lowtide report` "
                                    "reads it there; free some space and copy it to keep it",
                                    path, failure.message(), target.string()));
      fs::remove(draft, failure);
    } else {
      fs::remove(target, failure);
    }
  }
  if (!trouble.empty()) return trouble;  // the originals may be all there is
  const std::string prefix = ShmPrefix(directory);
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(shm_directory, failure)) {
    std::error_code ignored;
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && !kept.contains(name)) fs::remove(entry.path(), ignored);
  }
  return trouble;
}

}  // namespace lowtide::record
