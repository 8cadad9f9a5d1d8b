#include "finding/finding.h"

#include <fmt/core.h>

namespace lowtide::finding {

const char* SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "note";
}

std::optional<Severity> ParseSeverity(const std::string& name) {
  for (Severity severity : {Severity::kNote, Severity::kWarning, Severity::kError}) {
    if (name == SeverityName(severity)) return severity;
  }
  return std::nullopt;
}

std::string Fingerprint(const std::string& code, const std::vector<std::string>& parts) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  auto mix = [&](const std::string& text) {
    for (unsigned char c : text + '\0') hash = (hash ^ c) * 0x100000001b3u;
  };
  mix(code);
  for (const std::string& part : parts) mix(part);
  return fmt::format("{:016x}", hash);
}

}  // namespace lowtide::finding
