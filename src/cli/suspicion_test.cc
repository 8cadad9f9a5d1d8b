#include "cli/suspicion.h"

#include <gtest/gtest.h>

namespace lowtide::cli {
namespace {

using verdict::Judgement;
using verdict::Kind;

std::vector<Judgement> Watched(const char* pool, double grown, Kind kind = Kind::kInsufficient) {
  Judgement judgement;
  judgement.pool = pool, judgement.grown = grown, judgement.kind = kind, judgement.watch = true;
  return {judgement};
}

TEST(Suspicion, BlocksWithDatesOfBirthAreBelievedAtOnce) {
  EXPECT_TRUE(Suspicion().Is(12, Watched("cpu", 100)));
  EXPECT_TRUE(Suspicion().Is(12, Watched("cuda:1", 100)));
  EXPECT_FALSE(Suspicion().Is(12, {}));
}

TEST(Suspicion, GrowthOfTheStartMustLast) {
  Suspicion suspicion;
  EXPECT_FALSE(suspicion.Is(60, Watched("heap", 1e6)));
  EXPECT_FALSE(suspicion.Is(60 + Suspicion::kLasts - 1, Watched("heap", 1e6)));
  EXPECT_TRUE(suspicion.Is(60 + Suspicion::kLasts, Watched("heap", 1e6)));
  EXPECT_FALSE(suspicion.Is(120, {})) << "it is over";
  EXPECT_FALSE(suspicion.Is(130, Watched("heap", 1e6))) << "and begins anew";
}

TEST(Suspicion, FewBytesAndResidentMemoryAreNotWorthIt) {
  Suspicion workers, host, leak, descriptors;
  for (uint64_t step : {60, 600}) {
    EXPECT_FALSE(workers.Is(step, Watched("workers", 60e3)));
    EXPECT_FALSE(host.Is(step, Watched("host", 1e9, Kind::kLeak)));
    EXPECT_EQ(leak.Is(step, Watched("workers", 60e3, Kind::kLeak)), step > 60);
    EXPECT_EQ(descriptors.Is(step, Watched("fds", 40)), step > 60) << "counts are no bytes";
  }
}

}  // namespace
}  // namespace lowtide::cli
