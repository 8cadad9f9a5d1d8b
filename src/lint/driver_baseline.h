#pragma once

#include <set>
#include <string>
#include <vector>

#include "lint/driver.h"

namespace lowtide::lint {

// Fingerprints of findings that are known and shall not be reported. Throws Error when the file is no
// baseline.
std::set<std::string> ReadBaseline(const std::string& path);

// Everything in `files`, as a baseline file: sorted, one finding a line, so that it merges well.
std::string WriteBaseline(const std::vector<FileReport>& files);

// Gives each item its fingerprint: code, file relative to `root`, the text of its line without blanks; the
// n-th of equal ones counts n in. So it stays when lines move, and goes when the line is rewritten.
void Fingerprint(std::vector<FileReport>& files, const std::string& root);

}  // namespace lowtide::lint
