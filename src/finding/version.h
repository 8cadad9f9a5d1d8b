#pragma once

namespace lowtide {
inline constexpr const char* kVersion = LOWTIDE_VERSION;
}
