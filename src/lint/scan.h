#pragma once

#include <string_view>

namespace lowtide::lint {

// Whether any rule or any other file could want to know this text: a scan of its identifiers, some ten times faster
// than a parse.
bool WorthParsing(std::string_view text);

}  // namespace lowtide::lint
