#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "verdict/testing/programs.h"

namespace lowtide::verdict {
namespace {

// 300 steps of small programs, judged with the ledger of births.
TEST(Programs, BirthsDecideShortRuns) {
  for (auto& named : testing::Programs()) {
    for (uint64_t seed : {1, 2, 3}) {
      testing::Program program(seed);
      EngineOptions options;
      options.pool = "cpu";
      auto j = program.Run(300, options, true, named.make());
      EXPECT_EQ(j.kind == Kind::kLeak, named.leak) << named.name << ": " << Reason(j);
      if (!named.leak || j.kind != Kind::kLeak) continue;
      EXPECT_NEAR(*j.bytes_per_step, named.rate, 0.25 * named.rate) << named.name;
      EXPECT_EQ(*j.phase, named.phase) << named.name;
    }
  }
}

// The same with totals alone, as pools without a ledger have it.
TEST(Programs, TotalsDecideShortRuns) {
  for (auto& named : testing::Programs()) {
    testing::Program program(3);
    EngineOptions options;
    options.pool = "cpu";
    auto j = program.Run(300, options, false, named.make());
    EXPECT_EQ(j.kind == Kind::kLeak, named.leak) << named.name << ": " << Reason(j);
  }
}

TEST(Ledger, KeepsFewLooksAndRows) {
  Ledger ledger;
  std::vector<LedgerRow> rows;
  for (uint64_t step = 1; step <= 5000; ++step) {
    rows.push_back({step, step, series::Phase::kStep, 100, 1});
    if (step % 50 == 0) ledger.Look(static_cast<double>(step), rows);
  }
  auto l = ledger.Decide(1, std::nullopt);
  EXPECT_EQ(l.kind, LedgerVerdict::kLeak);
  EXPECT_NEAR(l.bytes_per_step, 100, 2);
}

TEST(Ledger, AStartUpIsNoLeak) {
  Ledger ledger;
  std::vector<LedgerRow> rows{{1, 1, series::Phase::kStep, 1e6, 10}, {40, 40, series::Phase::kStep, 1e6, 10}};
  ledger.Look(300, rows);
  EXPECT_NE(ledger.Decide(1, std::nullopt).kind, LedgerVerdict::kLeak);
}

}  // namespace
}  // namespace lowtide::verdict
