#pragma once

#include <optional>
#include <string>

#include "verdict/judgement.h"

// One file per kind of verdict: how it is explained and what to do. All texts in English and Chinese.
namespace lowtide::verdict {

struct Text {
  std::string en, zh;
};

// What a kind has to say. `code` nullptr: nothing to tell the user.
struct Words {
  const char* code = nullptr;
  finding::Severity severity = finding::Severity::kNote;
  Text reason, help;
};

Words LeakWords(const Judgement& j);
Words BoundedWords(const Judgement& j);
Words CapacityWords(const Judgement& j);
Words FragmentationWords(const Judgement& j);
Words StepChangeWords(const Judgement& j);
Words HealthyWords(const Judgement& j);
Words InsufficientWords(const Judgement& j);

// "GPU 0 (allocated)", "C heap", ...
Text PoolWords(const Judgement& j);
// Bytes, or a plain count for `fds`.
std::string Amount(const Judgement& j, double value);
std::string AmountPerStep(const Judgement& j, double value);
// 300 readings over steps 1..300
Text SpanWords(const Judgement& j);

}  // namespace lowtide::verdict
