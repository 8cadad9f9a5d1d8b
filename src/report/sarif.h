#pragma once

#include <string>
#include <vector>

#include "finding/finding.h"

namespace lowtide::report {

// SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html), one run, file URIs relative to
// `root` where they lie below it. Severity note, warning, error is SARIF's level of the same name.
std::string ToSarif(const std::vector<finding::Finding>& findings, const std::string& root);

}  // namespace lowtide::report
