#pragma once

#include <string>
#include <vector>

#include "finding/finding.h"

namespace lowtide::cli {

// 1 when a finding is at or above `severity` ("note", "warning", "error"), else `otherwise`.
inline int FailOn(const std::vector<finding::Finding>& findings, const std::string& severity, int otherwise) {
  auto least = finding::ParseSeverity(severity);
  for (const auto& finding : findings) {
    if (least && finding.severity >= *least) return 1;
  }
  return otherwise;
}

}  // namespace lowtide::cli
