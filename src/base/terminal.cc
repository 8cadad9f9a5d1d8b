#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace lowtide {
namespace {

bool Set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value && std::strcmp(value, "0") != 0;
}

bool WantsColor(int fd) {
  if (std::getenv("NO_COLOR") && *std::getenv("NO_COLOR")) return false;
  if (Set("FORCE_COLOR") || Set("CLICOLOR_FORCE")) return true;
  const char* term = std::getenv("TERM");
  return ::isatty(fd) && term && std::strcmp(term, "dumb") != 0;
}

bool Utf8Locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value && *value) return ::strcasestr(value, "utf-8") || ::strcasestr(value, "utf8");
  }
  return true;  // nothing set (containers, CI): files and logs are read as UTF-8 there
}

}  // namespace

Terminal Terminal::For(int fd, ColorMode mode) {
  Terminal terminal;
  terminal.color = mode == ColorMode::kAlways || (mode == ColorMode::kAuto && WantsColor(fd));
  terminal.unicode = Utf8Locale();
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) {
    terminal.width = size.ws_col;
  } else if (const char* columns = std::getenv("COLUMNS")) {
    int value = std::atoi(columns);
    if (value >= 20 && value < 1000) terminal.width = value;
  }
  return terminal;
}

std::string Terminal::Wrap(std::string_view code, std::string_view text) const {
  if (!color) return std::string(text);
  std::string out = "\x1b[";
  out.append(code).append("m").append(text).append("\x1b[0m");
  return out;
}

}  // namespace lowtide
