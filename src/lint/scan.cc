#include "lint/scan.h"

namespace lowtide::lint {

bool WorthParsing(std::string_view text) { return text.find("torch") != std::string_view::npos; }

}  // namespace lowtide::lint
