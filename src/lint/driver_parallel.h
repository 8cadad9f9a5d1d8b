#pragma once

#include <cstddef>
#include <functional>

namespace lowtide::lint {

// Calls work(i) once for each i below `count`, on up to `jobs` threads; `work` must not throw.
void ParallelFor(size_t count, int jobs, const std::function<void(size_t)>& work);

// `wanted`, or as many threads as there are cores for this process.
int Jobs(int wanted);

}  // namespace lowtide::lint
