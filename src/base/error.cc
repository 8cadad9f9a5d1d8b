#include "base/error.h"

#include <fmt/core.h>

namespace lowtide {
namespace {

std::string Compose(const std::string& message, const std::string& remedy, const std::string& file,
                    std::optional<uint64_t> offset) {
  std::string text;
  if (!file.empty()) text += file + ": ";
  text += message;
  if (offset) text += fmt::format(" (at byte {})", *offset);
  if (!remedy.empty()) text += "\n  help: " + remedy;
  return text;
}

}  // namespace

Error::Error(std::string message, std::string remedy, std::string file, std::optional<uint64_t> offset)
    : std::runtime_error(Compose(message, remedy, file, offset)),
      message_(std::move(message)),
      remedy_(std::move(remedy)),
      file_(std::move(file)),
      offset_(offset) {}

Error Error::In(const std::string& file) const {
  return file_.empty() ? Error(message_, remedy_, file, offset_) : *this;
}

}  // namespace lowtide
