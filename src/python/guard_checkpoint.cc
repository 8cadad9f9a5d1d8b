#include "python/guard.h"

namespace lowtide::python {
PyMethodDef kCheckpointMethods[] = {{nullptr, nullptr, 0, nullptr}};
}  // namespace lowtide::python
