#pragma once

#include "plan/config_keys.h"
#include "plan/shape.h"

namespace lowtide::plan {

// The shape that `keys` describe, by their model_type; `all` is the whole configuration (architectures, tying).
Shape ShapeOfFamily(const Keys& keys, const Keys& all);

}  // namespace lowtide::plan
