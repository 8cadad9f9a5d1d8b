#pragma once

#include <string>
#include <vector>

namespace lowtide::cli {

// What every verb has.
struct CommonOptions {
  std::string color = "auto";  // auto, always, never
  std::string lang = "en";     // en, zh
};

// One struct of options and one function per verb, each in its own file cli/<verb>.{h,cc}; parse.cc alone knows CLI11.
// A verb returns the exit code (0 clean, 1 findings at or above --fail-on, 2 lowtide could not do its work) and may
// throw lowtide::Error, which main prints.

}  // namespace lowtide::cli
