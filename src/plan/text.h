#pragma once

#include <string>

namespace lowtide::plan {

// One thing said in both languages; reports pick.
struct Text {
  std::string en, zh;
};

}  // namespace lowtide::plan
