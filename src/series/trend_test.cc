#include "series/trend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lowtide::series {
namespace {

std::vector<double> Steps(size_t n) {
  std::vector<double> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i);
  return x;
}

TEST(Trend, NormalQuantileInvertsTail) {
  for (double p : {0.4, 0.05, 1e-3, 1e-6, 1e-12})
    EXPECT_NEAR(UpperNormalTail(UpperNormalQuantile(p)) / p, 1, 1e-6) << p;
  EXPECT_NEAR(UpperNormalQuantile(0.025), 1.959964, 1e-5);
  EXPECT_NEAR(UpperNormalQuantile(0.975), -1.959964, 1e-5);
}

TEST(Trend, TheilSenIgnoresSpikesAndIsEquivariant) {
  auto x = Steps(50);
  std::vector<double> y(50);
  for (size_t i = 0; i < 50; ++i) y[i] = 7 + 3 * x[i] + (i % 10 == 3 ? 1e6 : 0);
  EXPECT_NEAR(TheilSen(x, y).slope, 3, 1e-9);
  auto scaled = y;
  for (auto& v : scaled) v = 5 * v + 100;
  EXPECT_NEAR(TheilSen(x, scaled).slope, 15, 1e-6);
}

TEST(Trend, MannKendallIsBlindToMonotoneMaps) {
  std::mt19937 random(3);
  std::vector<double> y(40), mapped(40);
  for (size_t i = 0; i < 40; ++i)
    y[i] = std::normal_distribution<>()(random) + 0.05 * static_cast<double>(i), mapped[i] = std::exp(y[i]);
  EXPECT_EQ(MannKendallOf(y).s, MannKendallOf(mapped).s);
  std::vector<double> reversed(y.rbegin(), y.rend());
  EXPECT_EQ(MannKendallOf(reversed).s, -MannKendallOf(y).s);
}

TEST(Trend, MannKendallCountsEveryPair) {
  std::mt19937 random(5);
  for (size_t n : {0, 1, 2, 15, 16, 17, 33, 100, 513}) {
    for (int levels : {1, 3, 1000000}) {
      std::vector<double> y(n);
      for (double& v : y) v = static_cast<double>(random() % static_cast<unsigned>(levels));
      double s = 0;
      for (size_t i = 0; i < n; ++i)
        for (size_t j = i + 1; j < n; ++j) s += (y[j] > y[i]) - (y[j] < y[i]);
      EXPECT_EQ(MannKendallOf(y).s, s) << n << " values of " << levels;
    }
  }
}

TEST(Trend, ConstantSeriesHasNoTrend) {
  std::vector<double> y(30, 5.0);
  EXPECT_EQ(MannKendallOf(y).Z(), 0);
  EXPECT_EQ(RatchetPValue(y), 1);
  EXPECT_EQ(SlopeOf(Steps(30), y, 1).value, 0);
}

TEST(Trend, VarianceInflationSeesAutocorrelation) {
  std::mt19937 random(5);
  std::vector<double> white(200), red(200);
  double state = 0;
  for (size_t i = 0; i < 200; ++i) {
    white[i] = std::normal_distribution<>()(random);
    state = 0.8 * state + std::normal_distribution<>()(random), red[i] = state;
  }
  EXPECT_LT(VarianceInflation(white, 0), 1.6);
  EXPECT_GT(VarianceInflation(red, 0), 3);
  EXPECT_EQ(VarianceInflation(red, 1e9), 1);  // below the unit of the figures
}

TEST(Trend, RatchetNeedsRisesThatStay) {
  std::vector<double> stairs, saw;
  for (int i = 0; i < 40; ++i) stairs.push_back(i / 4), saw.push_back(i % 20);
  EXPECT_LT(RatchetPValue(stairs), 0.005);  // nine rises that stayed: 2^-9
  EXPECT_GT(RatchetPValue(saw), 0.01);
}

TEST(Trend, FlickerIsDeafToRareJumps) {
  std::vector<double> y;
  for (int i = 0; i < 60; ++i) y.push_back((i % 2) * 10 + (i / 20) * 1e6);
  EXPECT_LT(FlickerOf(y), 20);
}

}  // namespace
}  // namespace lowtide::series
