#pragma once

#include <cstdint>
#include <span>

#include "snapshot/builder.h"

namespace lowtide::snapshot {

// A snapshot that was saved as JSON, of the same shape as the pickle. Throws Error with the offset.
Value LoadJson(std::span<const uint8_t> bytes, Builder& builder);

}  // namespace lowtide::snapshot
