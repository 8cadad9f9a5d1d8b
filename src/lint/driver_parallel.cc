#include "lint/driver_parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace lowtide::lint {

void ParallelFor(size_t count, int jobs, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  auto loop = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  size_t threads = std::min<size_t>(static_cast<size_t>(std::max(jobs, 1)), count);
  std::vector<std::jthread> pool;
  for (size_t i = 1; i < threads; ++i) pool.emplace_back(loop);
  loop();
}

int Jobs(int wanted) {
  if (wanted > 0) return std::min(wanted, 256);
  cpu_set_t set;
  int cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::max(cores, 1);
}

}  // namespace lowtide::lint
