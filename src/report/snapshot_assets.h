#pragma once

#include "report/assets.h"

namespace lowtide::report {

// src/report/assets/snapshot.css and snapshot.js, embedded at build time.
extern const Asset kSnapshotStyle;
extern const Asset kSnapshotScript;

}  // namespace lowtide::report
