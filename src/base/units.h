#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lowtide {

// "512 B", "29.6 KB", "1.20 GB": powers of 1000, three significant digits, sign kept.
std::string FormatBytes(double bytes);

// "29.6 KB/step".
std::string FormatRate(double bytes_per_step);

// "850 ms", "42 s", "3 min 20 s", "2 h 05 min", "4 d 3 h".
std::string FormatDuration(double seconds);

// "1,234,567".
std::string FormatCount(uint64_t count);

// Reads "24GB", "24 GiB", "512M", "1e9", "80g"; K, M, G, T are powers of 1000, Ki, Mi, Gi, Ti of 1024.
std::optional<uint64_t> ParseBytes(std::string_view text);

}  // namespace lowtide
