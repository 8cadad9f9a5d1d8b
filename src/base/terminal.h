#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace lowtide {

enum class ColorMode { kAuto, kAlways, kNever };

// What a stream can show. Auto: colour only on a terminal, not with NO_COLOR or TERM=dumb; FORCE_COLOR and
// CLICOLOR_FORCE turn it on (https://no-color.org, https://force-color.org).
struct Terminal {
  bool color = false;
  bool unicode = true;  // the locale is UTF-8
  int width = 100;      // columns

  static Terminal For(int fd, ColorMode mode = ColorMode::kAuto);

  std::string Bold(std::string_view text) const { return Wrap("1", text); }
  std::string Dim(std::string_view text) const { return Wrap("2", text); }
  std::string Red(std::string_view text) const { return Wrap("1;31", text); }
  std::string Yellow(std::string_view text) const { return Wrap("1;33", text); }
  std::string Green(std::string_view text) const { return Wrap("1;32", text); }
  std::string Cyan(std::string_view text) const { return Wrap("36", text); }

 private:
  std::string Wrap(std::string_view code, std::string_view text) const;
};

// To standard error, as far as it takes it: a message that nobody can read must not end the work it speaks of.
template <typename... Args>
void PrintError(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace lowtide
