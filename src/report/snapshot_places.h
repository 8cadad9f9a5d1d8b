#pragma once

#include <string>

#include "finding/finding.h"
#include "snapshot/call_sites.h"

namespace lowtide::report {

// Paths as they are, or, for a report that leaves the house, none: only whether code was the user's or a
// library's.
class SnapshotPlaces {
 public:
  explicit SnapshotPlaces(bool hide) : hide_(hide) {}
  bool hide() const { return hide_; }
  std::string Path(const std::string& file) const {
    if (!hide_ || file.empty()) return file;
    if (!snapshot::IsPythonFile(file)) return "hidden";
    return snapshot::IsLibraryFile(file) ? snapshot::ShortPath(file) : "hidden.py";
  }
  // A label that names a line of user code loses its file.
  std::string Label(const std::string& label) const {
    if (!hide_) return label;
    const size_t colon = label.find(".py:");
    if (colon == std::string::npos || label.starts_with("torch/")) return label;
    const size_t space = label.find(' ', colon);
    return space == std::string::npos ? "hidden.py" : "hidden.py" + label.substr(space);
  }
  finding::Finding Of(const finding::Finding& finding) const;

 private:
  bool hide_;
};

inline finding::Finding SnapshotPlaces::Of(const finding::Finding& finding) const {
  if (!hide_) return finding;
  finding::Finding out = finding;
  const finding::Severity severity = finding.severity;
  out.message = std::string(finding::SeverityName(severity)) + ": details hidden";
  out.message_zh = "细节已隐藏";
  out.help.clear();
  out.help_zh.clear();
  for (auto& where : out.where) where.file = Path(where.file);
  return out;
}

}  // namespace lowtide::report
