#pragma once

#include "lowtide/record/ring_format.h"

namespace lowtide::record {

// From now on the header says it when a signal ends this process (SIGTERM, SIGHUP, a crash...): SIGKILL and os._exit then
// are the only ends that leave no word, and a launcher's SIGTERM to the ranks that are left is told from the death of the
// first one. The action that was in force (the default one, or for a crash a handler such as Python's faulthandler) follows:
// the process ends by the same signal, with the same status and core file. Handlers that the program sets for signals other
// than crashes, and all that it sets later, have precedence.
// Called again, it changes the header only; null: no header (a forked child has no file yet).
void LeaveLastWord(FileHeader* header) noexcept;

}  // namespace lowtide::record
