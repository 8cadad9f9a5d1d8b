#include "base/units.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

namespace lowtide {

std::string FormatBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  double size = std::fabs(bytes);
  int unit = 0;
  while (size >= 999.5 && unit < 5) {
    size /= 1000;
    ++unit;
  }
  const char* sign = bytes < 0 && size > 0 ? "-" : "";
  if (unit == 0) {
    return size == std::floor(size) || size >= 10 ? fmt::format("{}{:.0f} B", sign, size)
                                                  : fmt::format("{}{:.1f} B", sign, size);
  }
  int decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return fmt::format("{}{:.{}f} {}", sign, size, decimals, kUnits[unit]);
}

std::string FormatRate(double bytes_per_step) { return FormatBytes(bytes_per_step) + "/step"; }

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds)) return "unknown";
  if (seconds < 0) return "-" + FormatDuration(-seconds);
  if (seconds < 0.0995) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

std::string FormatCount(uint64_t count) {
  std::string digits = std::to_string(count), out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::optional<uint64_t> ParseBytes(std::string_view text) {
  std::string copy(text);
  char* end = nullptr;
  double value = std::strtod(copy.c_str(), &end);
  if (end == copy.c_str() || !(value >= 0)) return std::nullopt;
  std::string unit;
  for (; *end; ++end) {
    if (!std::isspace(static_cast<unsigned char>(*end))) unit += static_cast<char>(std::tolower(*end));
  }
  if (!unit.empty() && unit.back() == 'b') unit.pop_back();
  static constexpr std::string_view kPrefixes = "kmgtp";
  double scale = 1;
  if (!unit.empty()) {
    size_t power = kPrefixes.find(unit[0]);
    bool binary = unit.size() == 2 && unit[1] == 'i';
    if (power == std::string_view::npos || (unit.size() > 1 && !binary)) return std::nullopt;
    scale = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  double bytes = value * scale;
  if (!(bytes < 1.8e19)) return std::nullopt;
  return static_cast<uint64_t>(bytes + 0.5);
}

}  // namespace lowtide
