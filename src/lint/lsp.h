#pragma once

#include "lint/driver.h"

namespace lowtide::lint {

// Serves one editor over the Language Server Protocol
// (https://microsoft.github.io/language-server-protocol, 3.17): reads messages from `in`, writes to `out`
// (file descriptors), returns when told to exit or when the input ends. Diagnostics on open, change and save
// against the index of the whole workspace; quick fixes, suppressions and "fix all" as code actions. Exit
// code 0 after `shutdown`, 1 without. Broken messages are answered and passed over.
int ServeLanguage(const DriverOptions& options, int in, int out);

}  // namespace lowtide::lint
