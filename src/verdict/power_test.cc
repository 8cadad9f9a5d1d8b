#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "verdict/engine.h"
#include "verdict/testing/families.h"

// False alarms and power over generated families. LOWTIDE_POWER_RUNS sets the runs per family (default 12).
namespace lowtide::verdict {
namespace {

int Runs() {
  const char* text = std::getenv("LOWTIDE_POWER_RUNS");
  return text ? std::max(1, std::atoi(text)) : 12;
}

struct Outcome {
  testing::Case input;
  Judgement j;
};

Outcome JudgeCase(testing::Generator& generator, const std::string& family, size_t readings,
                  double strength) {
  Outcome out{generator.Make(family, readings, strength), {}};
  EngineOptions options;
  options.pool = out.input.pool, options.quantum = out.input.quantum, options.capacity = out.input.capacity;
  Engine engine(options);
  for (auto& p : out.input.points) engine.Add(p);
  out.j = engine.Judge(true);
  return out;
}

TEST(Power, HealthyRunsRaiseNoAlarm) {
  testing::Generator generator(2024);
  int alarms = 0, watches = 0, plain = 0;
  for (auto& family : testing::Generator::Healthy()) {
    int leaks = 0, watch = 0;
    for (int i = 0; i < Runs(); ++i) {
      auto o = JudgeCase(generator, family, 300 + 75 * static_cast<size_t>(i % 12), 0);
      leaks += o.j.kind == Kind::kLeak, watch += o.j.watch;
    }
    fmt::print("  {:13} leak {}/{}  watch {}\n", family, leaks, Runs(), watch);
    if (family == "cache_late") continue;  // before its cap a linear cache is a leak to any test of totals
    alarms += leaks, watches += watch, plain += Runs();
  }
  fmt::print("  all: leak {}/{}, watch {}\n", alarms, plain, watches);
  EXPECT_LE(alarms, 1 + plain / 100);
}

TEST(Power, LeaksWellAboveTheNoiseAreFoundWithTheirRate) {
  testing::Generator generator(2025);
  int found = 0, all = 0, rate = 0, covered = 0;
  for (auto& family : testing::Generator::Leaks()) {
    int hits = 0;
    for (int i = 0; i < Runs(); ++i) {
      auto o = JudgeCase(generator, family, 500 + 60 * static_cast<size_t>(i % 12), 8);
      if (o.j.kind != Kind::kLeak) continue;
      ++hits;
      rate += std::abs(*o.j.bytes_per_step - o.input.slope) <= 0.25 * o.input.slope;
      covered += o.j.interval->first <= o.input.slope && o.input.slope <= o.j.interval->second;
    }
    fmt::print("  {:13} found {}/{}\n", family, hits, Runs());
    found += hits, all += Runs();
  }
  fmt::print("  all: found {}/{}, rate within 25 % {}, interval covers {}\n", found, all, rate, covered);
  EXPECT_GE(found, 0.5 * all);
  EXPECT_GE(rate, 0.8 * found);
  EXPECT_GE(covered, 0.75 * found);
}

}  // namespace
}  // namespace lowtide::verdict
