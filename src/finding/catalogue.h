#pragma once

#include <string_view>

#include "finding/finding.h"

namespace lowtide::finding {

struct Code {
  const char* code;   // LT1xx source, LT2xx memory over time, LT3xx snapshots, LT4xx holders, LT5xx gradients,
                      // LT6xx ranks, LT7xx checkpoints, LT9xx the tool itself
  const char* name;   // kebab-case, names the pattern: "loss-accumulated-with-graph"
  Severity severity;  // the default
  const char* title;
  const char* title_zh;
};

// Every code, in order; ends with a null code. One explicit line each, in the table of its part: codes/<part>.inc.
extern const Code kCodes[];

// nullptr when there is no such code.
const Code* FindCode(std::string_view code);

}  // namespace lowtide::finding
