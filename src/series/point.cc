#include "series/point.h"

#include <array>
#include <utility>

namespace lowtide::series {
namespace {

constexpr std::array<std::pair<std::string_view, Phase>, 22> kNames{{
    {"step", Phase::kStep},
    {"train", Phase::kStep},
    {"training", Phase::kStep},
    {"validation", Phase::kValidation},
    {"valid", Phase::kValidation},
    {"validate", Phase::kValidation},
    {"val", Phase::kValidation},
    {"eval", Phase::kValidation},
    {"evaluation", Phase::kValidation},
    {"evaluate", Phase::kValidation},
    {"test", Phase::kValidation},
    {"epoch", Phase::kEpoch},
    {"epoch_end", Phase::kEpoch},
    {"epoch boundary", Phase::kEpoch},
    {"checkpoint", Phase::kCheckpoint},
    {"ckpt", Phase::kCheckpoint},
    {"save", Phase::kCheckpoint},
    {"saving", Phase::kCheckpoint},
    {"other", Phase::kOther},
    {"log", Phase::kOther},
    {"logging", Phase::kOther},
    {"init", Phase::kOther},
}};

}  // namespace

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kStep:
      return "step";
    case Phase::kValidation:
      return "validation";
    case Phase::kEpoch:
      return "epoch";
    case Phase::kCheckpoint:
      return "checkpoint";
    case Phase::kOther:
      break;
  }
  return "other";
}

std::optional<Phase> ParsePhase(std::string_view name) {
  std::string lower;
  for (char c : name) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (auto& [text, phase] : kNames)
    if (text == lower) return phase;
  return std::nullopt;
}

double QuantumOf(std::string_view pool) {
  if (pool.starts_with("cpu") || pool.starts_with("cuda")) return 512;
  if (pool.starts_with("heap") || pool.starts_with("python")) return 64;
  if (pool.starts_with("device-other")) return 1 << 20;
  if (pool.starts_with("fds")) return 1;
  return 4096;
}

}  // namespace lowtide::series
