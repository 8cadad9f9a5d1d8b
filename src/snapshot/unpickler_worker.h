#pragma once

#include <exception>
#include <thread>

#include "snapshot/event_run.h"
#include "snapshot/unpickler.h"

namespace lowtide::snapshot {

// A thread that parses events from a place further on, while the reader is still on its way there.
struct Unpickler::Worker {
  explicit Worker(Source source) : run(source) {}
  ~Worker() {
    if (thread.joinable()) thread.join();
  }
  void Start();

  EventRun run;
  PodVector<uint32_t> prefix;  // a copy: the reader's own memo moves as it grows
  size_t begin = 0, end = 0, stop = 0;
  std::exception_ptr error;
  std::thread thread;
};

}  // namespace lowtide::snapshot
