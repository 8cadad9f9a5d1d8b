// How the names of a run folder's files in /dev/shm begin.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

namespace lowtide::record {

inline constexpr char kShmName[] = "lowtide-";
inline constexpr size_t kShmHashDigits = 16, kLongestHostTag = 32;

// This host's name as it stands in names of files, and which /dev/shm it is: containers of one host may each have their own.
inline std::string HostTag() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  std::string tag = std::string(name).substr(0, kLongestHostTag);
  for (char& c : tag) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
    if (!plain) c = '_';
  }
  struct stat shm {};
  char device[24];
  std::snprintf(device, sizeof device, "~%llx", ::stat("/dev/shm", &shm) == 0 ? static_cast<unsigned long long>(shm.st_dev) : 0ull);
  return tag + device;
}

// "lowtide-<16 hex digits>-<host>~<device>-". The folder may be shared by several hosts, whose processes may have the same
// numbers.
inline std::string ShmPrefix(const std::string& directory) {
  std::error_code ignored;
  const std::filesystem::path full = std::filesystem::weakly_canonical(std::filesystem::absolute(directory, ignored), ignored);
  uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (unsigned char c : full.string()) hash = (hash ^ c) * 1099511628211ull;
  char digits[24];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return kShmName + std::string(digits) + "-" + HostTag() + "-";
}

}  // namespace lowtide::record
