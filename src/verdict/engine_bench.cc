#include <benchmark/benchmark.h>

#include <cmath>
#include <random>

#include "verdict/engine.h"

// Samples per second of a long run, by what the series does; long enough for seven levels of the pyramid.
namespace lowtide::verdict {
namespace {

void Feed(benchmark::State& state, double slope, double sigma) {
  std::mt19937_64 random(1);
  std::vector<double> noise(4096);
  for (auto& v : noise) v = sigma * std::normal_distribution<>()(random);
  constexpr uint64_t kSamples = 200000;
  for (auto _ : state) {
    Engine engine;
    series::Point p;
    for (uint64_t i = 0; i < kSamples; ++i) {
      p.step = i,
      p.value = 1e9 + slope * static_cast<double>(i) + noise[(i * 2654435761u >> 8) % noise.size()];
      engine.Add(p);
    }
    benchmark::DoNotOptimize(engine.Judge(true));
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(kSamples));
}

void BM_Healthy(benchmark::State& state) { Feed(state, 0, 1e7); }
void BM_Constant(benchmark::State& state) { Feed(state, 0, 0); }
void BM_Leak(benchmark::State& state) { Feed(state, 4096, 1e6); }
BENCHMARK(BM_Healthy)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Constant)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Leak)->Unit(benchmark::kMillisecond);

void BM_Judge(benchmark::State& state) {
  Engine engine;
  series::Point p;
  for (uint64_t i = 0; i < 10000; ++i)
    p.step = i, p.value = 1e9 + 1e4 * static_cast<double>(i), engine.Add(p);
  for (auto _ : state) benchmark::DoNotOptimize(engine.Judge(true));
}
BENCHMARK(BM_Judge)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lowtide::verdict
