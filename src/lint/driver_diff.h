#pragma once

#include <string>
#include <string_view>

namespace lowtide::lint {

// A unified diff with three lines of context, as `git apply` and `patch` take it; empty when nothing changed.
// Lines keep their bytes, a missing final newline is marked. Myers' algorithm (An O(ND) Difference Algorithm,
// 1986); past 2000 differences it gives up looking for the shortest script.
std::string UnifiedDiff(std::string_view before, std::string_view after, const std::string& path);

}  // namespace lowtide::lint
