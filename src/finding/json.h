#pragma once

#include "finding/finding.h"

namespace lowtide {
class JsonWriter;
}

namespace lowtide::finding {

// One finding as findings.json has it.
void WriteFinding(JsonWriter& json, const Finding& finding);

}  // namespace lowtide::finding
