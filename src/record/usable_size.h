#pragma once

#include <cstddef>

namespace lowtide::record {

using AllocFunction = void* (*)(size_t);
using FreeFunction = void (*)(void*);

// Whether malloc_usable_size speaks of the blocks of `alloc`, a function of the library `definer`. It may be built on an
// allocator inside that library (mimalloc), whose blocks malloc_usable_size must not even be asked about. So some are made
// while standing in the library's slot for posix_memalign: they must come from there.
bool UsableSizeTold(const char* definer, AllocFunction alloc, FreeFunction release) noexcept;

}  // namespace lowtide::record
