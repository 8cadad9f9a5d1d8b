#pragma once

#include "base/terminal.h"
#include "cli/verbs.h"

namespace lowtide::cli {

inline Terminal TerminalFor(int fd, const CommonOptions& common) {
  ColorMode mode = common.color == "always" ? ColorMode::kAlways : common.color == "never" ? ColorMode::kNever : ColorMode::kAuto;
  return Terminal::For(fd, mode);
}

}  // namespace lowtide::cli
